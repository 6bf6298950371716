// All operations on pixels. An operation is a row here and a file beside this one.
#pragma once

#include <span>
#include <string_view>

#include "transform/pixels/operation.h"

namespace fastload {

// Those that move pixels.
#define FASTLOAD_MOVING_OPERATIONS(row)                                                 \
  row(kAffine) row(kRotate) row(kShearX) row(kShearY) row(kTranslateX) row(kTranslateY) \
      row(kMirror) row(kUpsideDown) row(kPerspective)

#define FASTLOAD_PIXEL_OPERATIONS(row)                                                         \
  row(kGrayscale) row(kInvert) row(kSolarize) row(kBrightness) row(kContrast) row(kSaturation) \
      row(kHue) row(kSharpness) row(kPosterize) row(kAutocontrast) row(kEqualize)              \
          row(kSolarizeAdd) row(kChannelPermutation) row(kGaussianNoise) row(kGaussianBlur)    \
              row(kGaussianBlurPillow) row(kTensorGrayscale) row(kTensorContrast)              \
                  row(kTensorSaturation) row(kTensorHue) FASTLOAD_MOVING_OPERATIONS(row)

#define FASTLOAD_DECLARE(name) extern const PixelOperation name;
FASTLOAD_PIXEL_OPERATIONS(FASTLOAD_DECLARE)
#undef FASTLOAD_DECLARE

std::span<const PixelOperation* const> pixel_operations();

// Throws Error(kValue) where there is none of that name.
const PixelOperation& pixel_operation(std::string_view name);

}  // namespace fastload
