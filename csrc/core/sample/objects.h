// Which of a sample's objects a view leaves, and where their boxes are then.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sample/objects_plan.h"
#include "transform/pixels/motion.h"
#include "transform/view.h"

namespace fastload {

// A picture of a sample, and what is seen of it.
struct Placed {
  const View* view = nullptr;
  uint32_t width = 0, height = 0;              // as stored: whose pixels the boxes' are
  uint32_t drawn_width = 0, drawn_height = 0;  // of what the view was drawn of
  const Motions* motions = nullptr;
};

struct Kept {
  std::vector<uint32_t> rows;  // of the value, ascending
  std::vector<float> boxes;    // 4 numbers of each of them, in the field's format
};

// The boxes of a value in pixels of the picture that views are drawn of, when that was moved.
// Throws Error(kFormat) for bytes that are no boxes.
std::vector<BoxXyxy> boxes_of(std::span<const uint8_t> value, const ObjectsPlan& plan,
                              const Placed& placed);

// The objects of a value of boxes that stay, and their boxes under the view. In double, in this
// order, as torchvision's v2 clips: boxes_of(); what is without centre_stays() becomes
// 0 0 0 0; the crop and resize; with plan.clip to view.area; window, flip, quarter turns; each
// motion of the view's pixels makes it the box around the moved corners, which with plan.clip is
// clipped to what comes out, but not behind flips. In the end it is with plan.clamp. Boxes that did
// not stand() between two steps of the geometry are dropped, whatever the plan says. Boxes that are
// then too small are dropped with plan.drop, with plan.inside those that reach over the border, and
// those of which `without` (a byte a row, or empty) is not 0. Throws as boxes_of(), and
// Error(kFormat) where `without` has another number of rows.
void keep_objects(std::span<const uint8_t> value, std::span<const uint8_t> without,
                  const ObjectsPlan& plan, const Placed& placed, Kept& to);

}  // namespace fastload
