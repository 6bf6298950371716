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

// Coefficients of blocks side by side lie in groups of `group` blocks, so that vectors hold the
// same ones of the whole group. Where those of a block lie is the kernel's own business: see
// places().
struct IdctKernel {
  int group = 1;
  // Transforms `count` blocks side by side (whole groups are read and written: up to group - 1
  // blocks more) into 8 rows of samples at `out`, and leaves the coefficients zero. `steps` in
  // natural order.
  void (*transform)(int16_t* coefs, const uint16_t* steps, uint8_t* out, size_t stride, int count);
  bool is_paired = false;  // rows in pairs, the columns of both side by side

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

// Pairs of 16-bit factors as pmaddwd takes them: a * even lane + b * odd lane.
enum class IdctPair : size_t {
  kWhole,
  kEven0,
  kEven1,
  kEven2,
  kEven3,
  kOddA,
  kOddB,
  kOdd17Sum0,
  kOdd35Sum1,
  kOdd35Sum2,
  kOdd17Sum3,
};
constexpr int32_t idct_pair(int a, int b) {
  return static_cast<int32_t>((static_cast<uint32_t>(b) << 16) |
                              (static_cast<uint32_t>(a) & 0xFFFFu));
}
constexpr std::array kIdctPairs{
    idct_pair(8192, 0),       idct_pair(10703, 4433),   idct_pair(4433, -10704),
    idct_pair(-4433, 10704),  idct_pair(-10703, -4433), idct_pair(-6436, 9633),
    idct_pair(9633, 6437),    idct_pair(-7373, 4926),   idct_pair(-20995, 4177),
    idct_pair(-4176, -20995), idct_pair(-4927, -7373),
};
// The same in memory, for instruction sets that multiply by what lies there: of a constant,
// compilers make a vector anew each time, through a general register.
extern const std::array<int32_t, kIdctPairs.size()> kIdctPairsInMemory;
// The same transform by pairs of inputs. Of rows (0, 4): the even sums' first part, twice; of
// (2, 6): what comes to them; then for sums 0 to 3 of (1, 3) and (5, 7).
extern const std::array<int32_t, 14> kIdctPairsOfRows;
// For four sums in a lane, of columns (0, 2), (4, 6), (1, 3), (5, 7).
alignas(16) extern const std::array<std::array<int32_t, 4>, 4> kIdctPairsOfColumns;

void idct_scalar(int16_t* coefs, const uint16_t* steps, uint8_t* out, size_t stride, int count);
void idct_avx2(int16_t* coefs, const uint16_t* steps, uint8_t* out, size_t stride, int count);
void idct_avx512(int16_t* coefs, const uint16_t* steps, uint8_t* out, size_t stride, int count);
void idct_neon(int16_t* coefs, const uint16_t* steps, uint8_t* out, size_t stride, int count);

}  // namespace fastload
