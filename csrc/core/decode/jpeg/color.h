// Chroma upsampling and YCbCr to RGB on rows of samples, bit for bit as libjpeg-turbo does by
// default: "fancy" (triangle filter) upsampling of jdsample.c, and the JFIF conversion of jdcolor.c
// in 16-bit fixed point.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/kernels.h"

namespace fastload {

// Rows may be read and written past their `count` up to the next multiple of kColorBlock output
// pixels. Upsampling reads the samples in[-1] and in[count] too: beyond the picture they repeat the
// outermost sample, which makes libjpeg's formulas for the first and last column the general ones.
constexpr int kColorBlock = 64;

struct ColorKernels {
  // 2 * count samples: (3 * this + left + 1) / 4 and (3 * this + right + 2) / 4.
  void (*h2v1)(const uint8_t* in, uint8_t* out, int count);
  // 2 * count samples of one output row; `near` is the closer input row, weighted 3 to 1.
  void (*h2v2)(const uint8_t* near, const uint8_t* far, uint8_t* out, int count);
  // count samples: (3 * near + far + bias) / 4; the bias is 1 in even output rows and 2 in odd
  // ones.
  void (*h1v2)(const uint8_t* near, const uint8_t* far, int bias, uint8_t* out, int count);
  // Interleaved RGB.
  void (*ycc_to_rgb)(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, uint8_t* rgb,
                     int count);
  void (*gray_to_rgb)(const uint8_t* y, uint8_t* rgb, int count);
};

FASTLOAD_KERNEL(extern const ColorKernels kColor);
inline const ColorKernels& color_kernels(SimdLevel level) {
  return FASTLOAD_KERNEL_AT(level, kColor);
}

}  // namespace fastload
