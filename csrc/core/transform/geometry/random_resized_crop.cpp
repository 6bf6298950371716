// torchvision's RandomResizedCrop.get_params, ten tries, then the central fallback. Try i draws
// from Philox block (kCrop, 2i): words 0, 1 the area, uniform in scale; words 2, 3 the logarithm of
// the ratio, uniform; and, if the crop fits, from (kCrop, 2i + 1): words 0, 1 the top row, words 2,
// 3 the left column, uniform_below. (uniform_double of two words where "uniform" is said.)
#include <algorithm>
#include <cmath>

#include "transform/geometry/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"height",    "width",     "scale_min",
                                       "scale_max", "ratio_min", "ratio_max"};
constexpr uint32_t kTries = 10;

Rect central_fallback(double ratio_min, double ratio_max, int width, int height) {
  const double ratio = static_cast<double>(width) / height;
  int w = width;
  int h = height;
  if (ratio < ratio_min) {
    h = std::clamp(round_even(w / ratio_min), 1, height);
  } else if (ratio > ratio_max) {
    w = std::clamp(round_even(h * ratio_max), 1, width);
  }
  return {(width - w) / 2, (height - h) / 2, w, h};
}

Rect draw(std::span<const double> numbers, int width, int height, const SampleRng& rng) {
  const double area = static_cast<double>(width) * height;
  const double log_min = std::log(numbers[4]);
  const double log_max = std::log(numbers[5]);
  for (uint32_t i = 0; i < kTries; ++i) {
    const PhiloxWords a = rng.words(DrawOp::kCrop, 2 * i);
    const double target = area * uniform_between(a[0], a[1], numbers[2], numbers[3]);
    const double ratio = std::exp(uniform_between(a[2], a[3], log_min, log_max));
    const double w = std::nearbyint(std::sqrt(target * ratio));
    const double h = std::nearbyint(std::sqrt(target / ratio));
    if (!(w > 0 && w <= width && h > 0 && h <= height)) continue;
    const PhiloxWords b = rng.words(DrawOp::kCrop, 2 * i + 1);
    const int crop_w = static_cast<int>(w);
    const int crop_h = static_cast<int>(h);
    const auto y = uniform_below(b[0], b[1], static_cast<uint32_t>(height - crop_h + 1));
    const auto x = uniform_below(b[2], b[3], static_cast<uint32_t>(width - crop_w + 1));
    return {static_cast<int>(x), static_cast<int>(y), crop_w, crop_h};
  }
  return central_fallback(numbers[4], numbers[5], width, height);
}

void apply(std::span<const double> numbers, const SampleRng& rng, View& view) {
  settle(view);
  crop_to(view, draw(numbers, view.crop.width, view.crop.height, rng));
  resize_to(view, static_cast<int>(numbers[1]), static_cast<int>(numbers[0]));
}

}  // namespace

constinit const GeometryOperation kRandomResizedCrop{"random_resized_crop", kParameters, apply};

}  // namespace fastload
