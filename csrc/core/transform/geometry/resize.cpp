// The whole picture resized, to a size or by its shorter side.
#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "transform/geometry/registry.h"

namespace fastload {
namespace {

constexpr int64_t kMaxSide = 1 << 24;
constexpr const char* kSize[] = {"height", "width"};
constexpr const char* kShorter[] = {"size", "max_size"};  // max_size 0: no bound

void exact(std::span<const double> numbers, const SampleRng&, View& view) {
  resize_to(view, static_cast<int>(numbers[1]), static_cast<int>(numbers[0]));
}

void shorter(std::span<const double> numbers, const SampleRng&, View& view) {
  resize_shorter(view, numbers[0], numbers[1]);
}

}  // namespace

int checked_side(double value) {
  if (value <= static_cast<double>(kMaxSide)) return std::max(static_cast<int>(value), 1);
  throw Error(ErrorKind::kLimit, "A resized side must be at most 16777216 pixels. Found: " +
                                     std::to_string(value) + ". Give Resize a max_size.");
}

// torchvision's _compute_resized_output_size for one size: the shorter side gets it, the longer one
// is truncated. A side that torchvision would round down to 0 pixels is 1 here.
void resize_shorter(View& view, double size, double max_size) {
  settle(view);
  const int width = view.crop.width;
  const int height = view.crop.height;
  double new_short = size;
  double new_long = std::trunc(new_short * std::max(width, height) / std::min(width, height));
  if (max_size > 0 && new_long > max_size) {
    new_short = std::trunc(max_size * new_short / new_long);
    new_long = max_size;
  }
  resize_to(view, checked_side(width <= height ? new_short : new_long),
            checked_side(width <= height ? new_long : new_short));
}

constinit const GeometryOperation kResizeExact{
    .name = "resize_exact", .parameters = kSize, .apply = exact, .still = true};
constinit const GeometryOperation kResizeShorter{
    .name = "resize_shorter", .parameters = kShorter, .apply = shorter, .still = true};

}  // namespace fastload
