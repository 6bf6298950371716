// FixedSizeCrop of torchvision's detection references: where a side is larger, a part of the given
// size at most, at one random share of the way for both sides; then fill at the right and below.
// Philox block (kCrop, 21): words 0, 1, uniform_double.
#include <algorithm>

#include "transform/geometry/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"height", "width"};
constexpr uint32_t kBlock = 21;

void apply(std::span<const double> numbers, const SampleRng& rng, View& view) {
  const int height = static_cast<int>(numbers[0]), width = static_cast<int>(numbers[1]);
  const int new_height = std::min(view.window.height, height);
  const int new_width = std::min(view.window.width, width);
  const int free_x = view.window.width - new_width, free_y = view.window.height - new_height;
  if (free_x > 0 || free_y > 0) {
    const PhiloxWords a = rng.words(DrawOp::kCrop, kBlock);
    const double share = uniform_double(a[0], a[1]);
    show_window(view, {static_cast<int>(free_x * share), static_cast<int>(free_y * share),
                       new_width, new_height});
  }
  if (new_width < width || new_height < height) {
    pad_by(view, 0, 0, width - new_width, height - new_height);
  }
}

}  // namespace

constinit const GeometryOperation kFixedSizeCrop{"fixed_size_crop", kParameters, apply};

}  // namespace fastload
