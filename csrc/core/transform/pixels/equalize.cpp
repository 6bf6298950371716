// Pillow's ImageOps.equalize: each channel's values spread so that their histogram is about even.
#include <algorithm>
#include <array>

#include "transform/pixels/pointwise.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

using Histogram = std::array<uint32_t, 256>;

ByteTable spread(const Histogram& counts, uint64_t pixels) {
  const auto last = std::find_if(counts.rbegin(), counts.rend(), [](uint32_t n) { return n > 0; });
  const uint64_t step = (pixels - *last) / 255;
  ByteTable table;
  uint64_t below = step / 2;
  for (size_t i = 0; i < 256; ++i) {
    // No step: too few pixels, or of one value only; they stay.
    table[i] = static_cast<uint8_t>(step == 0 ? i : std::min<uint64_t>(below / step, 255));
    below += counts[i];
  }
  return table;
}

// Pixels are counted by turns in two sets of histograms: where neighbours are equal, a count need
// not wait for the one before it.
struct Counts {
  Histogram of[2][3] = {};

  void add(const uint8_t* pixel, size_t turn) {
    for (size_t c = 0; c < 3; ++c) ++of[turn][c][pixel[c]];
  }
};

void apply(std::span<const double>, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  const uint8_t* const rgb = picture.pixels;
  const size_t pixels = picture.bytes() / 3;
  Counts counts;
  size_t i = 0;
  for (; i + 2 <= pixels; i += 2) {
    counts.add(rgb + 3 * i, 0);
    counts.add(rgb + 3 * i + 3, 1);
  }
  if (i < pixels) counts.add(rgb + 3 * i, 0);
  ByteTable tables[3];
  for (size_t c = 0; c < 3; ++c) {
    Histogram& all = counts.of[0][c];
    for (size_t v = 0; v < all.size(); ++v) all[v] += counts.of[1][c][v];
    tables[c] = spread(all, pixels);
  }
  point_kernels().look_up_each(picture.pixels, pixels, tables);
}

}  // namespace

constinit const PixelOperation kEqualize{"equalize", 10, {}, apply};

}  // namespace fastload
