#include <cstring>

#include "transform/pixels/warp_kernels.h"
#include "transform/pixels/warp_pixel.h"

namespace fastload {
namespace {

void nearest(const Picture& from, uint32_t x, uint32_t y, uint32_t dx, uint32_t dy, int count,
             uint8_t* to) {
  for (int i = 0; i < count; ++i, to += 3, x += dx, y += dy) {
    const int column = static_cast<int32_t>(x) >> 16;
    const int row = static_cast<int32_t>(y) >> 16;
    if (column < 0 || column >= from.width || row < 0 || row >= from.height) continue;
    std::memcpy(to, pixel(from, column, row), 3);
  }
}

void reversed(const uint8_t* from, int count, uint8_t* to) {
  for (from += 3 * count; count > 0; --count, to += 3) std::memcpy(to, from -= 3, 3);
}

template <int kTaps>
void all_filtered(const Picture& from, const Warp& warp, const Picture& made) {
  uint8_t* to = made.pixels;
  for (int y = 0; y < made.height; ++y) {
    for (int x = 0; x < made.width; ++x, to += 3) {
      const At at = source_of(warp.motion, x, y);
      if (!is_inside(at, from)) {
        std::memcpy(to, warp.fill.data(), 3);
        continue;
      }
      const Neighbours<kTaps> around(from, between_pixels(at));
      for (int c = 0; c < 3; ++c) to[c] = around.value(c);
    }
  }
}

void filtered(const Picture& from, const Warp& warp, uint8_t*, const Picture& to) {
  if (warp.filter == WarpFilter::kBilinear) return all_filtered<2>(from, warp, to);
  all_filtered<4>(from, warp, to);
}

size_t no_scratch(const Picture&, const Picture&) { return 0; }

}  // namespace

const WarpKernels kScalarWarp{nearest, reversed, filtered, no_scratch};

}  // namespace fastload
