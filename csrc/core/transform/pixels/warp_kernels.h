// The inner loops of warp(), once per instruction set; all give the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cpu.h"
#include "transform/pixels/warp.h"

namespace fastload {

struct WarpKernels {
  // A row of `count` pixels: pixel i shows column (x + i * dx) >> 16 and row (y + i * dy) >>
  // 16 of `from`, in 32 bits, or stays as it is where that is outside.
  void (*nearest)(const Picture& from, uint32_t x, uint32_t y, uint32_t dx, uint32_t dy, int count,
                  uint8_t* to);
  // `count` pixels in reverse.
  void (*reversed)(const uint8_t* from, int count, uint8_t* to);
  // A picture, bilinear or bicubic, to one that has RowSink::kSlack behind it.
  void (*filtered)(const Picture& from, const Warp& warp, uint8_t* scratch, const Picture& to);
  // Of `filtered`.
  size_t (*scratch_bytes)(const Picture& from, const Picture& to);
};

// Pixels of pictures that vector kernels take: they count bytes in 31 bits, and make a copy.
inline constexpr int64_t kMostWarped = int64_t{1} << 24;

extern const WarpKernels kScalarWarp;
#if defined(__x86_64__)
extern const WarpKernels kAvx2Warp;
extern const WarpKernels kAvx512Warp;
#endif

const WarpKernels& warp_kernels(SimdLevel level);

}  // namespace fastload
