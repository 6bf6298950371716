// Pillow's ImageOps.solarize: what is not below the threshold is inverted. The threshold need not
// be a whole number.
#include <cmath>

#include "transform/pixels/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"threshold"};

void apply(std::span<const double> numbers, const PixelDraws&, Canvas& canvas) {
  const Picture picture = canvas.picture();    // a copy: bytes may alias the canvas's
  const double first = std::ceil(numbers[0]);  // the least whole number that is not below it
  if (first > 255) return;
  const auto threshold = static_cast<uint8_t>(first > 0 ? first : 0);
  const size_t bytes = picture.bytes();
  for (size_t i = 0; i < bytes; ++i) {
    const uint8_t value = picture.pixels[i];
    picture.pixels[i] = value < threshold ? value : static_cast<uint8_t>(~value);
  }
}

}  // namespace

constinit const PixelOperation kSolarize{"solarize", 2, kParameters, apply, nullptr, true};

}  // namespace fastload
