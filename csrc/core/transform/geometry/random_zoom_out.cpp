// torchvision's RandomZoomOut. Philox block (kZoomOut, 0): words 0, 1 whether, words 2, 3 the
// sides' factor; block 1: words 0, 1 the place from the left, words 2, 3 from the top; all
// uniform_double, the factor and the places in float32, as torchvision has them.
#include "transform/geometry/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"side_min", "side_max", "probability"};

void apply(std::span<const double> numbers, const SampleRng& rng, View& view) {
  const PhiloxWords a = rng.words(DrawOp::kZoomOut, 0);
  if (!(uniform_double(a[0], a[1]) < numbers[2])) return;
  const float factor = float_between(a[2], a[3], numbers[0], numbers[1]);
  const auto more = [&](int side) {
    return checked_side(static_cast<float>(side) * factor) - side;
  };
  const int more_x = more(view.window.width), more_y = more(view.window.height);
  const PhiloxWords b = rng.words(DrawOp::kZoomOut, 1);
  const auto share = [](int of, uint32_t high, uint32_t low) {
    return static_cast<int>(static_cast<float>(of) * float_between(high, low, 0, 1));
  };
  const int left = share(more_x, b[0], b[1]);
  const int top = share(more_y, b[2], b[3]);
  pad_by(view, left, top, more_x - left, more_y - top);
}

}  // namespace

constinit const GeometryOperation kRandomZoomOut{"random_zoom_out", kParameters, apply};

}  // namespace fastload
