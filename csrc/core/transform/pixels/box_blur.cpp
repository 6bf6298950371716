// Pillow's ImageFilter.GaussianBlur: three box blurs along rows, then three along columns, of boxes
// whose outermost pixels have a part of a weight (Gwosdek et al., "Theoretical Foundations of
// Gaussian Convolution by Extended Box Filtering", SSVM 2011), as Pillow's BoxBlur.c computes them.
#include <cmath>

#include "transform/pixels/box_blur_kernels.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"radius"};

// The radius of boxes whose third convolution has this standard deviation: in float, as Pillow's.
float box_radius(float sigma) {
  const float sigma2 = sigma * sigma / static_cast<float>(kBoxPasses);
  const auto length = static_cast<float>(std::sqrt(12.0 * static_cast<double>(sigma2) + 1.0));
  const auto whole = static_cast<float>(std::floor((static_cast<double>(length) - 1.0) / 2.0));
  const float next = whole + 1.0F;
  float part = (2.0F * whole + 1.0F) * (whole * next - 3.0F * sigma2);
  part /= 6.0F * (sigma2 - next * next);
  return whole + part;
}

Box box_of(float radius) {
  Box box;
  box.reach = static_cast<int>(radius);
  const auto reach = static_cast<uint32_t>(box.reach);
  box.inner = static_cast<uint32_t>(16777216.0F / (radius * 2.0F + 1.0F));
  box.outer = ((uint32_t{1} << 24) - (reach * 2 + 1) * box.inner) / 2;
  return box;
}

void apply(std::span<const double> numbers, const PixelDraws&, Canvas& canvas) {
  const auto sigma = static_cast<float>(numbers[0]);
  if (sigma <= 0.0F) return;
  const Picture& picture = canvas.picture();
  const Box box = box_of(box_radius(sigma));
  uint8_t* scratch = canvas.scratch(box_blur_scratch(box, picture.width, picture.height));
  FASTLOAD_KERNEL_AT(simd_level(), box_blur)(box, picture, scratch);
}

}  // namespace

constinit const PixelOperation kGaussianBlurPillow{"gaussian_blur_pillow", 46, kParameters, apply};

}  // namespace fastload
