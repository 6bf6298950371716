// Fill around the picture: given sides, or, where it is too small for a crop, what is missing on
// both sides, as torchvision's RandomCrop(pad_if_needed=True) does, or at the right and below, as
// its references' PadIfSmaller does; or a border of its own pixels.
#include <algorithm>

#include "transform/geometry/registry.h"

namespace fastload {
namespace {

constexpr const char* kSides[] = {"left", "top", "right", "bottom"};
constexpr const char* kSize[] = {"height", "width"};
constexpr const char* kBordered[] = {"left", "top", "right", "bottom", "border"};
constexpr const char* kBorderedSize[] = {"height", "width", "border"};

int missing(double wanted, int side) { return std::max(static_cast<int>(wanted) - side, 0); }

Border border_of(double number) { return static_cast<Border>(static_cast<int>(number)); }

void by(std::span<const double> numbers, const SampleRng&, View& view) {
  pad_by(view, static_cast<int>(numbers[0]), static_cast<int>(numbers[1]),
         static_cast<int>(numbers[2]), static_cast<int>(numbers[3]));
}

void to(std::span<const double> numbers, const SampleRng&, View& view) {
  const int down = missing(numbers[0], view.window.height);
  const int across = missing(numbers[1], view.window.width);
  if (down > 0 || across > 0) pad_by(view, across, down, across, down);
}

void below(std::span<const double> numbers, const SampleRng&, View& view) {
  const int down = missing(numbers[0], view.window.height);
  const int across = missing(numbers[1], view.window.width);
  if (down > 0 || across > 0) pad_by(view, 0, 0, across, down);
}

void border(std::span<const double> numbers, const SampleRng&, View& view) {
  const auto side = [&](size_t i) { return static_cast<int>(numbers[i]); };
  pad_by(view, side(0), side(1), side(2), side(3), border_of(numbers[4]));
}

void border_to(std::span<const double> numbers, const SampleRng&, View& view) {
  const int down = missing(numbers[0], view.window.height);
  const int across = missing(numbers[1], view.window.width);
  if (down > 0 || across > 0) pad_by(view, across, down, across, down, border_of(numbers[2]));
}

}  // namespace

constinit const GeometryOperation kPad{"pad", kSides, by};
constinit const GeometryOperation kPadTo{"pad_to", kSize, to};
constinit const GeometryOperation kPadBelow{"pad_below", kSize, below};
constinit const GeometryOperation kPadBorder{"pad_border", kBordered, border};
constinit const GeometryOperation kPadBorderTo{"pad_border_to", kBorderedSize, border_to};

}  // namespace fastload
