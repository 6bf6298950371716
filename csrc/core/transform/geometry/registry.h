// All steps of the geometry. A step is a row here and a file beside this one.
#pragma once

#include <span>
#include <string_view>

#include "transform/geometry/operation.h"

namespace fastload {

#define FASTLOAD_GEOMETRY_OPERATIONS(row)                                                         \
  row(kAcrossFirst) row(kBucketCover) row(kCenterCrop) row(kClampBoxes) row(kFixedSizeCrop)       \
      row(kHorizontalFlip)                                                                        \
      row(kJudgeBoxes) row(kLetterbox) row(kPad) row(kPadBelow) row(kPadBorder) row(kPadBorderTo) \
          row(kPadTo) row(kQuarterTurn) row(kRandomCrop) row(kRandomFilter) row(kRandomIouCrop)   \
              row(kRandomResize) row(kRandomResizedCrop) row(kRandomShortestSize)                 \
                  row(kRandomZoomOut) row(kResizeExact) row(kResizeShorter)                       \
                      row(kResizeToPatches) row(kScaleJitter) row(kVerticalFlip)

#define FASTLOAD_DECLARE(name) extern const GeometryOperation name;
FASTLOAD_GEOMETRY_OPERATIONS(FASTLOAD_DECLARE)
#undef FASTLOAD_DECLARE

std::span<const GeometryOperation* const> geometry_operations();

}  // namespace fastload
