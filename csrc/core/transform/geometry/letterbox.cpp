// The whole picture in a size, its shape kept, with fill around it: places as Ultralytics 8.4 has
// them, by either of two rules. By its LetterBox's the sides are rounded; by its data set's, which
// resizes when it reads, the longer side is the size and the other one is rounded up.
#include <algorithm>
#include <cmath>

#include "transform/geometry/registry.h"

namespace fastload {
namespace {

// The last three are 0 or 1; rounded_up: by the data set's rule.
constexpr const char* kParameters[] = {"height", "width", "rounded_up", "scale_up", "center"};

void apply(std::span<const double> numbers, const SampleRng&, View& view) {
  const int height = static_cast<int>(numbers[0]), width = static_cast<int>(numbers[1]);
  const bool rounded_up = numbers[2] != 0, scale_up = numbers[3] != 0, center = numbers[4] != 0;
  settle(view);
  double factor = std::min(static_cast<double>(height) / view.crop.height,
                           static_cast<double>(width) / view.crop.width);
  if (!scale_up) factor = std::min(factor, 1.0);
  const auto side = [&](int from, int most) {
    const double exact = from * factor;
    const int found = rounded_up ? static_cast<int>(std::ceil(exact)) : round_even(exact);
    return std::clamp(found, 1, most);
  };
  resize_to(view, side(view.crop.width, width), side(view.crop.height, height));
  const int across = width - view.window.width, down = height - view.window.height;
  if (across == 0 && down == 0) return;
  const int left = center ? across / 2 : 0, top = center ? down / 2 : 0;
  pad_by(view, left, top, across - left, down - top);
}

}  // namespace

constinit const GeometryOperation kLetterbox{
    .name = "letterbox", .parameters = kParameters, .apply = apply, .still = true};

}  // namespace fastload
