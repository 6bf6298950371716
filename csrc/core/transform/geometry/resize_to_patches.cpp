// NaFlex: the picture as large as so many patches allow, its sides in proportion, then rounded up
// to whole patches. The factor is found as timm's get_image_size_for_seq finds it (timm 1.0,
// data/naflex_transforms.py), by halving [1e-6, 100] until it is narrower than 1e-5.
#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "transform/geometry/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"patch", "most", "max_ratio"};  // max_ratio 0: no bound
constexpr double kClose = 1e-5;
constexpr double kLargest = 100.0;

// Patches along a side.
double patches(int side, double factor, double patch) {
  return std::max(std::ceil(side * factor / patch), 1.0);
}

void apply(std::span<const double> numbers, const SampleRng&, View& view) {
  settle(view);
  const double patch = numbers[0], most = numbers[1];
  const int width = view.crop.width, height = view.crop.height;
  double low = kClose / 10, high = kLargest;
  while (high - low >= kClose) {
    const double middle = (low + high) / 2;
    const bool fits = patches(height, middle, patch) * patches(width, middle, patch) <= most;
    (fits ? low : high) = middle;
  }
  if (low <= kClose) {
    throw Error(ErrorKind::kValue,
                "ResizeToPatches finds no size of " + std::to_string(static_cast<int64_t>(most)) +
                    " patches at most for a picture of " + std::to_string(width) + " x " +
                    std::to_string(height) + " pixels: its sides differ too much. Crop it first.");
  }
  const double factor = numbers[2] > 0 ? std::min(low, numbers[2]) : low;
  resize_to(view, checked_side(patch * patches(width, factor, patch)),
            checked_side(patch * patches(height, factor, patch)));
}

}  // namespace

constinit const GeometryOperation kResizeToPatches{
    .name = "resize_to_patches", .parameters = kParameters, .apply = apply, .still = true};

}  // namespace fastload
