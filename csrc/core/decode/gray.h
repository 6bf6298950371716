// RGB to gray, once for each instruction set; all give the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cpu.h"

namespace fastload {

// Pillow's convert("L") of `count` interleaved RGB pixels.
using GrayLine = void (*)(const uint8_t* rgb, size_t count, uint8_t* gray);

GrayLine gray_line(SimdLevel level);

#if defined(__x86_64__)
void gray_line_avx2(const uint8_t* rgb, size_t count, uint8_t* gray);
void gray_line_avx512(const uint8_t* rgb, size_t count, uint8_t* gray);
#endif

}  // namespace fastload
