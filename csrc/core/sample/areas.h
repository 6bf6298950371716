// Areas of objects (COCO's run lengths) under a view, cut as masks are: by the nearest pixel.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "sample/outline_runs.h"
#include "sample/points.h"
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

// The same for values of outlines and areas (PointFormat::kMixed): the outlines' points are moved
// by `map`.
std::vector<uint8_t> move_mixed(std::span<const uint8_t> bytes, const PointMap& map,
                                const ViewAt& view_at, const Motions& motions = {},
                                std::pair<int, int> drawn = {});

// Where these run lengths of an area end. Throws Error(kFormat) where they are not as long as its
// picture, or that has no size or sides beyond 2^24.
RunEnds ends_of_runs(std::span<const uint32_t> runs, uint32_t height, uint32_t width);

// The run lengths of an object's pixels, a byte each, row after row.
std::vector<uint32_t> runs_of(const uint8_t* pixels, int height, int width);

// Where the runs of a whole object of a height x width picture end after that was moved. `drawn`:
// width and height of the picture that the motions are of. Throws Error(kLimit) for pictures of
// more than 2^30 pixels.
RunEnds moved_before(const RunEnds& ends, uint32_t height, uint32_t width,
                     std::span<const Motion> motions, std::pair<int, int> drawn);

}  // namespace fastload
