// Pillow's ImageOps.invert.
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

void apply(std::span<const double>, const PixelDraws&, Canvas& canvas) {
  const Picture picture = canvas.picture();  // a copy: bytes may alias the canvas's
  const size_t bytes = picture.bytes();
  for (size_t i = 0; i < bytes; ++i) picture.pixels[i] = static_cast<uint8_t>(~picture.pixels[i]);
}

}  // namespace

constinit const PixelOperation kInvert{"invert", 1, {}, apply, nullptr, true};

}  // namespace fastload
