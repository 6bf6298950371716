// Fill around the picture: given sides, or, where it is too small for a crop, what is missing on
// both sides, as torchvision's RandomCrop(pad_if_needed=True) does.
#include <algorithm>

#include "transform/geometry/registry.h"

namespace fastload {
namespace {

constexpr const char* kSides[] = {"left", "top", "right", "bottom"};
constexpr const char* kSize[] = {"height", "width"};

void by(std::span<const double> numbers, const SampleRng&, View& view) {
  pad_by(view, static_cast<int>(numbers[0]), static_cast<int>(numbers[1]),
         static_cast<int>(numbers[2]), static_cast<int>(numbers[3]));
}

void to(std::span<const double> numbers, const SampleRng&, View& view) {
  const int down = std::max(static_cast<int>(numbers[0]) - view.window.height, 0);
  const int across = std::max(static_cast<int>(numbers[1]) - view.window.width, 0);
  if (down > 0 || across > 0) pad_by(view, across, down, across, down);
}

}  // namespace

constinit const GeometryOperation kPad{"pad", kSides, by};
constinit const GeometryOperation kPadTo{"pad_to", kSize, to};

}  // namespace fastload
