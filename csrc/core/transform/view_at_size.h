// A view for a picture of another size than the one it was drawn of: masks, further pictures.
#pragma once

#include <cstdint>

#include "transform/view.h"

namespace fastload {

// A view that was drawn of a picture of one size, for one of another: the corners of what it takes
// of the picture are rounded to whole pixels, halves up, and the window has as many pixels as
// before.
View view_at_size(const View& view, uint32_t drawn_width, uint32_t drawn_height, uint32_t width,
                  uint32_t height);

}  // namespace fastload
