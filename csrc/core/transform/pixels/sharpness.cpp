// Pillow's ImageEnhance.Sharpness: the picture smoothed by a 3 x 3 filter, and the picture,
// blended. The filter leaves the outermost rows and columns as they are, and so does the blend.
#include <algorithm>
#include <cstring>

#include "transform/pixels/pointwise.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"factor"};

void apply(std::span<const double> numbers, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  if (picture.width < 3 || picture.height < 3) return;
  const auto factor = static_cast<float>(numbers[0]);
  const PointKernels& kernels = point_kernels();
  const size_t row = size_t{3} * static_cast<size_t>(picture.width);
  // Rows as they were, of which the picture has the new ones already.
  uint8_t* above = canvas.scratch(2 * row);
  uint8_t* middle = above + row;
  std::memcpy(above, picture.pixels, row);
  uint8_t* out = picture.pixels + row;
  for (int y = 1; y + 1 < picture.height; ++y, out += row) {
    std::memcpy(middle, out, row);
    kernels.sharpen(above, middle, out + row, row, factor, out);
    std::swap(above, middle);
  }
}

}  // namespace

constinit const PixelOperation kSharpness{"sharpness", 7, kParameters, apply};

}  // namespace fastload
