// Pillow's ImageEnhance.Contrast: the picture's mean luma, rounded, and the picture, blended.
#include "transform/pixels/pointwise.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"factor"};

void apply(std::span<const double> numbers, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  const PointKernels& kernels = point_kernels();
  const uint64_t pixels = picture.bytes() / 3;
  const uint64_t sum = kernels.luma_sum(picture.pixels, pixels);
  const auto mean = static_cast<int>((2 * sum + pixels) / (2 * pixels));
  const ByteTable table = blend_table(mean, static_cast<float>(numbers[0]));
  kernels.look_up(picture.pixels, picture.bytes(), table);
}

}  // namespace

constinit const PixelOperation kContrast{"contrast", 4, kParameters, apply};

}  // namespace fastload
