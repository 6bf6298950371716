// Pillow's ImageEnhance.Color: the gray picture and the picture, blended.
#include "transform/pixels/pointwise.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"factor"};

void apply(std::span<const double> numbers, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  const auto factor = static_cast<float>(numbers[0]);
  point_kernels().saturation(picture.pixels, picture.bytes() / 3, factor);
}

}  // namespace

constinit const PixelOperation kSaturation{"saturation", 5, kParameters, apply, nullptr, true};

}  // namespace fastload
