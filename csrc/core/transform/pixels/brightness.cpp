// Pillow's ImageEnhance.Brightness: black and the picture, blended.
#include "transform/pixels/pointwise.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"factor"};

void apply(std::span<const double> numbers, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  const ByteTable table = blend_table(0, static_cast<float>(numbers[0]));
  point_kernels().look_up(picture.pixels, picture.bytes(), table);
}

}  // namespace

constinit const PixelOperation kBrightness{"brightness", 3, kParameters, apply, nullptr, true};

}  // namespace fastload
