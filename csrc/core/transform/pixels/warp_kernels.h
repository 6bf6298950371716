// The inner loops of warp(), once for each SIMD level; all give the same bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/kernels.h"
#include "transform/pixels/warp.h"

namespace fastload {

// Pixels of pictures that kernels take: they count bytes in 31 bits, and make a copy.
inline constexpr int64_t kMostWarped = int64_t{1} << 24;

// A row of `count` pixels: pixel i shows column (x + i * dx) >> 16 and row (y + i * dy) >> 16 of
// `from`, in 32 bits, or stays as it is where that is outside.
FASTLOAD_KERNEL(void warp_nearest(const Picture& from, uint32_t x, uint32_t y, uint32_t dx,
                                  uint32_t dy, int count, uint8_t* to));
// `count` pixels in reverse.
FASTLOAD_KERNEL(void warp_reversed(const uint8_t* from, int count, uint8_t* to));
// A picture, bilinear or bicubic, to one that has RowSink::kSlack behind it. `scratch` has
// warp_scratch() bytes and is aligned to 64.
FASTLOAD_KERNEL(void warp_filtered(const Picture& from, const Warp& warp, uint8_t* scratch,
                                   const Picture& to));

// A copy of `from` of four bytes a pixel with a border, and what is known of a row.
inline size_t warp_scratch(const Picture& from, const Picture& to) {
  const auto more = [](int size, int by) { return static_cast<size_t>(size) + by; };
  return 4 * more(from.width, 4) * more(from.height, 4) +
         80 * more(std::max(from.width, to.width), 64);
}

// The same as warp_filtered(), pixel by pixel: for pictures of any size, and as the tests' reference.
void warp_plainly(const Picture& from, const Warp& warp, const Picture& to);

}  // namespace fastload
