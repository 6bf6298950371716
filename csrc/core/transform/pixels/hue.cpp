// torchvision's adjust_hue of a PIL picture: Pillow's convert("HSV"), the hue moved by a share of a
// turn in whole 255ths, and back.
#include "transform/pixels/pointwise.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"factor"};

void apply(std::span<const double> numbers, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  const auto shift = static_cast<uint8_t>(static_cast<int>(numbers[0] * 255.0));
  point_kernels().hue(picture.pixels, picture.bytes() / 3, shift);
}

}  // namespace

constinit const PixelOperation kHue{"hue", 6, kParameters, apply, nullptr, true};

}  // namespace fastload
