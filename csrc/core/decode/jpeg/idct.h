// Dequantisation and the inverse DCT: libjpeg's accurate integer transform (jidctint.c, after
// Loeffler, Ligtenberg and Moschytz, "Practical fast 1-D DCT algorithms with 11 multiplications",
// ICASSP 1989).
//
// All kernels give what libjpeg-turbo's x86 SIMD code gives, bit for bit and for any input:
// products and sums of coefficients wrap at 16 bits, sums of products at 32, results saturate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/cpu.h"
#include "decode/jpeg/entropy.h"

namespace fastload {

// Coefficients of blocks side by side lie in groups of `group` blocks: row r of block b of a group
// at [r * 8 * group + 8 * b], so that a vector holds one row of the whole group.
struct IdctKernel {
  int group = 1;
  // Transforms `count` blocks side by side (whole groups are read and written: up to group - 1
  // blocks more) into 8 rows of samples at `out`, and leaves the coefficients zero. `steps` in
  // natural order.
  void (*transform)(int16_t* coefs, const uint16_t* steps, uint8_t* out, size_t stride, int count);

  // Where coefficient k - 1 (zig-zag) of a group's first block goes, for DecodeRun.
  [[nodiscard]] CoefPlaces places() const;
  // Offset of block `index` of a row of blocks.
  [[nodiscard]] size_t block_offset(int index) const {
    return static_cast<size_t>(index / group * group * 64 + index % group * 8);
  }
  // Coefficients that `count` blocks take up.
  [[nodiscard]] size_t row_size(int count) const {
    return static_cast<size_t>((count + group - 1) / group * group * 64);
  }
};

IdctKernel idct_kernel(SimdLevel level);

void idct_scalar(int16_t* coefs, const uint16_t* steps, uint8_t* out, size_t stride, int count);
void idct_avx2(int16_t* coefs, const uint16_t* steps, uint8_t* out, size_t stride, int count);
void idct_avx512(int16_t* coefs, const uint16_t* steps, uint8_t* out, size_t stride, int count);
void idct_neon(int16_t* coefs, const uint16_t* steps, uint8_t* out, size_t stride, int count);

}  // namespace fastload
