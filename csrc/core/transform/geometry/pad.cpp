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

constinit const GeometryOperation kPad{
    .name = "pad", .parameters = kSides, .apply = by, .still = true};
constinit const GeometryOperation kPadTo{
    .name = "pad_to", .parameters = kSize, .apply = to, .still = true};
constinit const GeometryOperation kPadBelow{
    .name = "pad_below", .parameters = kSize, .apply = below, .still = true};
constinit const GeometryOperation kPadBorder{
    .name = "pad_border", .parameters = kBordered, .apply = border, .still = true};
constinit const GeometryOperation kPadBorderTo{
    .name = "pad_border_to", .parameters = kBorderedSize, .apply = border_to, .still = true};

}  // namespace fastload
