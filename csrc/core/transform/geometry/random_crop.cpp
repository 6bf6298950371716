// torchvision's RandomCrop.get_params: Philox block (kCrop, 20): words 0, 1 the top row, words 2, 3
// the left column, uniform_below.
#include <string>

#include "base/error.h"
#include "transform/geometry/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"height", "width"};
constexpr uint32_t kBlock = 20;  // those before are RandomResizedCrop's

void apply(std::span<const double> numbers, const SampleRng& rng, View& view) {
  const int height = static_cast<int>(numbers[0]);
  const int width = static_cast<int>(numbers[1]);
  const int free_x = view.window.width - width;
  const int free_y = view.window.height - height;
  if (free_x < 0 || free_y < 0) {
    throw Error(ErrorKind::kValue,
                "RandomCrop of " + std::to_string(width) + " x " + std::to_string(height) +
                    " pixels is larger than the picture, which has " +
                    std::to_string(view.window.width) + " x " + std::to_string(view.window.height) +
                    " there. Resize it to more first, or pad it.");
  }
  const PhiloxWords a = rng.words(DrawOp::kCrop, kBlock);
  const auto y = uniform_below(a[0], a[1], static_cast<uint32_t>(free_y + 1));
  const auto x = uniform_below(a[2], a[3], static_cast<uint32_t>(free_x + 1));
  show_window(view, {static_cast<int>(x), static_cast<int>(y), width, height});
}

}  // namespace

constinit const GeometryOperation kRandomCrop{"random_crop", kParameters, apply};

}  // namespace fastload
