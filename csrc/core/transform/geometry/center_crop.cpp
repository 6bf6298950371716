// torchvision's center_crop. Where the picture is smaller, zeros surround it.
#include "transform/geometry/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"height", "width"};

// Along one axis: where the window begins.
int offset(int size, int crop) {
  return crop > size ? -((crop - size) / 2) : round_even((size - crop) / 2.0);
}

void apply(std::span<const double> numbers, const SampleRng&, View& view) {
  const int height = static_cast<int>(numbers[0]);
  const int width = static_cast<int>(numbers[1]);
  show_window(
      view, {offset(view.window.width, width), offset(view.window.height, height), width, height});
}

}  // namespace

constinit const GeometryOperation kCenterCrop{
    .name = "center_crop", .parameters = kParameters, .apply = apply, .still = true};

}  // namespace fastload
