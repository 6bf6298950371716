// Pillow's ImageOps.autocontrast: each channel's least value becomes 0 and its greatest 255. A
// channel of one value stays.
#include <algorithm>

#include "transform/pixels/pointwise.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

ByteTable stretched(int least, int greatest) {
  // Where they are equal every value in use stays, whatever becomes of the others.
  const double scale = greatest > least ? 255.0 / (greatest - least) : 1.0;
  const double offset = greatest > least ? -least * scale : 0.0;
  ByteTable table;
  for (int i = 0; i < 256; ++i) {
    const double value = i * scale + offset;
    table[static_cast<size_t>(i)] = static_cast<uint8_t>(std::clamp(value, 0.0, 255.0));
  }
  return table;
}

void apply(std::span<const double>, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  const PointKernels& kernels = point_kernels();
  const size_t pixels = picture.bytes() / 3;
  uint8_t least[3];
  uint8_t greatest[3];
  kernels.extremes(picture.pixels, pixels, least, greatest);
  ByteTable tables[3];
  for (size_t c = 0; c < 3; ++c) tables[c] = stretched(least[c], greatest[c]);
  kernels.look_up_each(picture.pixels, pixels, tables);
}

}  // namespace

constinit const PixelOperation kAutocontrast{"autocontrast", 9, {}, apply};

}  // namespace fastload
