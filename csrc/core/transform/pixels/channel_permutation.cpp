// The channels in another order: torchvision's permute_channels.
#include <algorithm>
#include <iterator>

#include "transform/pixels/pointwise.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"order"};

// Which channel comes first, second and third; in rising order.
constexpr uint8_t kOrders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

void apply(std::span<const double> numbers, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  const double last = static_cast<double>(std::size(kOrders)) - 1.0;
  const uint8_t* order = kOrders[static_cast<size_t>(std::clamp(numbers[0], 0.0, last))];
  point_kernels().permute(picture.pixels, picture.bytes() / 3, order);
}

}  // namespace

constinit const PixelOperation kChannelPermutation{
    "channel_permutation", 12, kParameters, apply, nullptr, true};

}  // namespace fastload
