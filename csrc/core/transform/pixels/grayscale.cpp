// Pillow's convert("L") in all three channels.
#include "transform/pixels/pointwise.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

void apply(std::span<const double>, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  point_kernels().grayscale(picture.pixels, picture.bytes() / 3);
}

}  // namespace

constinit const PixelOperation kGrayscale{"grayscale", 0, {}, apply, nullptr, true};

}  // namespace fastload
