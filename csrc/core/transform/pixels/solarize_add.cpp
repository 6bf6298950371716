// timm's solarize_add: values below the threshold grow by a number, to 255 at most.
#include <algorithm>

#include "transform/pixels/pointwise.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"add", "threshold"};

void apply(std::span<const double> numbers, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  ByteTable table;
  for (int i = 0; i < 256; ++i) {
    const double value = i < numbers[1] ? i + numbers[0] : i;
    table[static_cast<size_t>(i)] = static_cast<uint8_t>(std::clamp(value, 0.0, 255.0));
  }
  point_kernels().look_up(picture.pixels, picture.bytes(), table);
}

}  // namespace

constinit const PixelOperation kSolarizeAdd{"solarize_add", 11, kParameters, apply, nullptr, true};

}  // namespace fastload
