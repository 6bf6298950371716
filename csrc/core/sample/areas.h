// Areas of objects (COCO's run lengths) under a view, cut as masks are: by the nearest pixel.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "transform/pixels/motion.h"
#include "transform/view.h"

namespace fastload {

// The view of areas of width x height pixels.
using ViewAt = std::function<View(int width, int height)>;

// The value's bytes (FORMAT.md) under the view: each object has the size of its view's window, what
// lies outside the picture is not its. Objects of which nothing is seen stay, so that they are as
// many as the boxes. Throws Error(kFormat) for bytes that are no areas.
// What the motions bring from outside is not theirs either; `drawn`: width and height of the
// picture that those of the source are of.
std::vector<uint8_t> move_areas(std::span<const uint8_t> bytes, const ViewAt& view_at,
                                const Motions& motions = {}, std::pair<int, int> drawn = {});

}  // namespace fastload
