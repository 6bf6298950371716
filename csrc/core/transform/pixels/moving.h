// What operations that move pixels have in common.
#pragma once

#include <array>
#include <numbers>
#include <span>

#include "transform/pixels/operation.h"
#include "transform/pixels/warp.h"

namespace fastload {

using MotionOf = Motion (*)(std::span<const double>, const PixelDraws&, int, int);

// The last numbers of a row that filters; `filter` is WarpFilter's, the others are the fill.
#define FASTLOAD_FILTER_AND_FILL "filter", "red", "green", "blue"

// A row's `apply`, by its `motion`.
template <MotionOf kMotion>
void apply_filtered(std::span<const double> numbers, const PixelDraws& draws, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  const std::span<const double> last = numbers.last(4);
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(static_cast<int>(last[i])); };
  warp({kMotion(numbers, draws, picture.width, picture.height),
        static_cast<WarpFilter>(static_cast<int>(last[0])),
        {byte(1), byte(2), byte(3)}},
       canvas);
}

// The same where no pixel falls between others.
template <MotionOf kMotion>
void apply_exact(std::span<const double> numbers, const PixelDraws& draws, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  warp({kMotion(numbers, draws, picture.width, picture.height), WarpFilter::kNearest, {}}, canvas);
}

// As Python's math module has them.
inline double radians(double degrees) { return degrees * (std::numbers::pi / 180.0); }
inline double degrees(double radians) { return radians * (180.0 / std::numbers::pi); }

}  // namespace fastload
