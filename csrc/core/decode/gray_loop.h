// The loop of every gray_line(), which compilers vectorise for the instruction set of the file that
// includes it; it has internal linkage, so that each file keeps its own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastload {
namespace {

// libImaging/Convert.c, rgb2l: ITU-R 601-2 in 16-bit fixed point, rounded.
inline void gray_loop(const uint8_t* __restrict__ rgb, size_t count, uint8_t* __restrict__ gray) {
  for (size_t i = 0; i < count; ++i) {
    const uint32_t sum = rgb[3 * i] * 19595u + rgb[3 * i + 1] * 38470u + rgb[3 * i + 2] * 7471u;
    gray[i] = static_cast<uint8_t>((sum + 0x8000u) >> 16);
  }
}

}  // namespace
}  // namespace fastload
