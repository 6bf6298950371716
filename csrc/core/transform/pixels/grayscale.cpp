// Pillow's convert("L") (libImaging/Convert.c, ITU-R 601-2 luma in 16.16 fixed point), in all three
// channels.
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

void apply(std::span<const double>, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  uint8_t* const end = picture.pixels + picture.bytes();
  for (uint8_t* p = picture.pixels; p != end; p += 3) {
    const uint32_t luma = 19595u * p[0] + 38470u * p[1] + 7471u * p[2] + 0x8000u;
    p[0] = p[1] = p[2] = static_cast<uint8_t>(luma >> 16);
  }
}

}  // namespace

constinit const PixelOperation kGrayscale{"grayscale", 0, {}, apply};

}  // namespace fastload
