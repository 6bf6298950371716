// The inner loops of warp(), once per instruction set; all give the same bytes.
#pragma once

#include <cstdint>

#include "base/cpu.h"
#include "transform/pixels/warp.h"

namespace fastload {

struct WarpKernels {
  // A row of `width` pixels: pixel i shows column (x + i * dx) >> 16 and row (y + i * dy) >> 16 of
  // `from`, in 32 bits, or stays as it is where that is outside.
  void (*nearest)(const Picture& from, uint32_t x, uint32_t y, uint32_t dx, uint32_t dy,
                  uint8_t* to);
  // Row y, bilinear or bicubic; what is outside stays as it is. Writes no byte behind the row.
  void (*bilinear)(const Picture& from, const Motion& motion, int y, uint8_t* to);
  void (*bicubic)(const Picture& from, const Motion& motion, int y, uint8_t* to);
};

extern const WarpKernels kScalarWarp;

const WarpKernels& warp_kernels(SimdLevel level);

}  // namespace fastload
