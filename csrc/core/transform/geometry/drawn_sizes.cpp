// The picture resized to sizes that are drawn, of Philox block (kResizeTo, 0), words 0, 1.
// torchvision has drawn factors as float32, and multiplies in it: in double a side that comes out
// whole would be a pixel smaller.
#include <algorithm>

#include "transform/geometry/registry.h"

namespace fastload {
namespace {

constexpr const char* kJitter[] = {"height", "width", "scale_min", "scale_max"};
constexpr const char* kShortest[] = {"max_size", "min_size"};  // max_size 0: no bound
constexpr const char* kBetween[] = {"least", "end"};

void resize_by(View& view, double factor) {
  resize_to(view, checked_side(view.crop.width * factor), checked_side(view.crop.height * factor));
}

// torchvision's ScaleJitter, which takes the size's height for the width and its width for the
// height; uniform_double.
void jitter(std::span<const double> numbers, const SampleRng& rng, View& view) {
  settle(view);
  const PhiloxWords a = rng.words(DrawOp::kResizeTo, 0);
  const float scale = float_between(a[0], a[1], numbers[2], numbers[3]);
  const double fits = std::min(numbers[1] / view.crop.height, numbers[0] / view.crop.width);
  const float factor = static_cast<float>(fits) * scale;
  const auto side = [&](int from) { return checked_side(static_cast<float>(from) * factor); };
  resize_to(view, side(view.crop.width), side(view.crop.height));
}

// torchvision's RandomShortestSize, whose shorter side may come out a pixel below; uniform_below.
void shortest(std::span<const double> numbers, const SampleRng& rng, View& view) {
  settle(view);
  const std::span<const double> sizes = numbers.subspan(1);
  const PhiloxWords a = rng.words(DrawOp::kResizeTo, 0);
  const double size = sizes[uniform_below(a[0], a[1], static_cast<uint32_t>(sizes.size()))];
  double factor = size / std::min(view.crop.width, view.crop.height);
  if (numbers[0] > 0) {
    factor = std::min(factor, numbers[0] / std::max(view.crop.width, view.crop.height));
  }
  resize_by(view, factor);
}

// torchvision's RandomResize; uniform_below.
void between(std::span<const double> numbers, const SampleRng& rng, View& view) {
  const PhiloxWords a = rng.words(DrawOp::kResizeTo, 0);
  const auto choices = static_cast<uint32_t>(numbers[1] - numbers[0]);
  resize_shorter(view, numbers[0] + uniform_below(a[0], a[1], choices), 0);
}

}  // namespace

constinit const GeometryOperation kScaleJitter{"scale_jitter", kJitter, jitter};
constinit const GeometryOperation kRandomShortestSize{"random_shortest_size", kShortest, shortest,
                                                      true};
constinit const GeometryOperation kRandomResize{"random_resize", kBetween, between};

}  // namespace fastload
