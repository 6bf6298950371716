// torchvision's RandomZoomOut. Philox block (kZoomOut, 0): words 0, 1 whether, words 2, 3 the
// sides' factor; block 1: words 0, 1 the place from the left, words 2, 3 from the top; all
// uniform_double.
#include "transform/geometry/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"side_min", "side_max", "probability"};

void apply(std::span<const double> numbers, const SampleRng& rng, View& view) {
  const PhiloxWords a = rng.words(DrawOp::kZoomOut, 0);
  if (!(uniform_double(a[0], a[1]) < numbers[2])) return;
  const double factor = uniform_between(a[2], a[3], numbers[0], numbers[1]);
  const int more_x = checked_side(view.crop.width * factor) - view.crop.width;
  const int more_y = checked_side(view.crop.height * factor) - view.crop.height;
  const PhiloxWords b = rng.words(DrawOp::kZoomOut, 1);
  const int left = static_cast<int>(more_x * uniform_double(b[0], b[1]));
  const int top = static_cast<int>(more_y * uniform_double(b[2], b[3]));
  pad_by(view, left, top, more_x - left, more_y - top);
}

}  // namespace

constinit const GeometryOperation kRandomZoomOut{"random_zoom_out", kParameters, apply};

}  // namespace fastload
