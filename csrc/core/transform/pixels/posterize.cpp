// Pillow's ImageOps.posterize: the highest bits of each value.
#include <algorithm>

#include "transform/pixels/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"bits"};

void apply(std::span<const double> numbers, const PixelDraws&, Canvas& canvas) {
  const Picture picture = canvas.picture();  // a copy: bytes may alias the canvas's
  const auto bits = static_cast<int>(std::clamp(numbers[0], 0.0, 8.0));
  const auto mask = static_cast<uint8_t>(0xFF << (8 - bits));
  const size_t bytes = picture.bytes();
  for (size_t i = 0; i < bytes; ++i) picture.pixels[i] &= mask;
}

}  // namespace

constinit const PixelOperation kPosterize{"posterize", 8, kParameters, apply, nullptr, true};

}  // namespace fastload
