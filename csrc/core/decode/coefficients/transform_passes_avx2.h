// The inverse DCT of idct_simd.h for coefficients that are small enough for sums of 16 bits not to
// overflow. Then libjpeg-turbo's sums may be put together in any way, and this one needs fewer
// shuffles: values come in the pairs that pmaddwd multiplies, for the second pass too, and the
// results leave 32-bit sums by a shift and a blend. For files compiled for AVX2.
//
// x0 .. x7 are the values of a row or column. `low` and `high` hold pairs of four columns each; in
// each 128-bit lane is another block.
#pragma once

#if defined(__x86_64__)

#include <array>

#include "base/vectors.h"
#include "decode/jpeg/idct_v256.h"

namespace fastload {
namespace {

// Coefficients in [-kSmall, kSmall). Blocks with nothing below their first row need no other way,
// too: what libjpeg-turbo does there differs beyond.
constexpr int kSmall = 8192;
// x0 of the second pass is larger by this: the rounding of its sums and the 128 of its results,
// both in its 13 bits of fraction and 5 more.
constexpr int kSecondStart = 16 + 128 * 32;
constexpr int32_t kFirstStart = 1 << 10;  // the rounding of the first pass
constexpr int32_t kFirstColumnStart = kFirstStart + (kSecondStart << 11);

// Pairs (x0, x4), (x2, x6), (x1, x7), (x5, x3).
using PairedRows = std::array<Wide<V256>, 4>;

using Half = __m256i Wide<V256>::*;

// The eight sums of one half, the even ones from `start` on; `z` is (x1 + x5, x7 + x3). A half at a
// time, since 16 registers hold no more.
inline void paired_sums(const PairedRows& x, __m256i z, Half half, __m256i start, __m256i* sums) {
  const auto product = [](__m256i in, int32_t factors) {
    return _mm256_madd_epi16(in, _mm256_set1_epi32(factors));
  };
  const auto both = [sums](size_t i, __m256i even, __m256i odd) {
    sums[i] = _mm256_add_epi32(even, odd);
    sums[7 - i] = _mm256_sub_epi32(even, odd);
  };
  const __m256i in04 = x[0].*half, in26 = x[1].*half, in17 = x[2].*half, in53 = x[3].*half;
  const __m256i odd_a = product(z, idct_pair(9633, -6436)),
                odd_b = product(z, idct_pair(6437, 9633));
  const __m256i even0 = _mm256_add_epi32(product(in04, idct_pair(8192, 8192)), start);
  const __m256i a = product(in26, idct_pair(10703, 4433));
  both(0, _mm256_add_epi32(even0, a),
       _mm256_add_epi32(odd_b, product(in17, idct_pair(4926, -7373))));
  both(3, _mm256_sub_epi32(even0, a),
       _mm256_add_epi32(odd_a, product(in17, idct_pair(-7373, -4927))));
  const __m256i even1 = _mm256_add_epi32(product(in04, idct_pair(8192, -8192)), start);
  const __m256i b = product(in26, idct_pair(4433, -10704));
  both(1, _mm256_add_epi32(even1, b),
       _mm256_add_epi32(odd_a, product(in53, idct_pair(-20995, 4177))));
  both(2, _mm256_sub_epi32(even1, b),
       _mm256_add_epi32(odd_b, product(in53, idct_pair(-4176, -20995))));
}

// Pass 1: rows with columns 0 4 2 6 1 7 5 3.
inline void first_pass(const PairedRows& x, __m256i start_low, __m256i start_high, __m256i* y) {
  __m256i sums[8];
  paired_sums(x, _mm256_add_epi16(x[2].low, x[3].low), &Wide<V256>::low, start_low, sums);
  for (int i = 0; i < 8; ++i) y[i] = _mm256_srai_epi32(sums[i], 11);
  paired_sums(x, _mm256_add_epi16(x[2].high, x[3].high), &Wide<V256>::high, start_high, sums);
  for (int i = 0; i < 8; ++i) y[i] = _mm256_packs_epi32(y[i], _mm256_srai_epi32(sums[i], 11));
}

// Rows to pairs of columns; `low` has rows 0 to 3.
inline PairedRows columns_of(const __m256i* y) {
  PairedRows x;
  const auto four = [&x](const __m256i* rows, Half half) {
    const __m256i a0 = _mm256_unpacklo_epi32(rows[0], rows[1]);
    const __m256i a1 = _mm256_unpackhi_epi32(rows[0], rows[1]);
    const __m256i a2 = _mm256_unpacklo_epi32(rows[2], rows[3]);
    const __m256i a3 = _mm256_unpackhi_epi32(rows[2], rows[3]);
    x[0].*half = _mm256_unpacklo_epi64(a0, a2), x[1].*half = _mm256_unpackhi_epi64(a0, a2);
    x[2].*half = _mm256_unpacklo_epi64(a1, a3), x[3].*half = _mm256_unpackhi_epi64(a1, a3);
  };
  four(y, &Wide<V256>::low);
  four(y + 4, &Wide<V256>::high);
  return x;
}

// libjpeg-turbo's x0 + x4, x0 - x4 and z are what they are without overflow.
inline bool fit(const PairedRows& x, Wide<V256> z) {
  // The highest bit: x0 (without kSecondStart) or x4 is not in [-2^14, 2^14).
  const __m256i range = _mm256_set1_epi32(idct_pair(16384 - kSecondStart, 16384));
  const __m256i even =
      _mm256_or_si256(_mm256_add_epi16(x[0].low, range), _mm256_add_epi16(x[0].high, range));
  const __m256i low = _mm256_xor_si256(z.low, _mm256_adds_epi16(x[2].low, x[3].low));
  const __m256i high = _mm256_xor_si256(z.high, _mm256_adds_epi16(x[2].high, x[3].high));
  const __m256i all = _mm256_or_si256(even, _mm256_or_si256(low, high));
  return _mm256_testz_si256(all, _mm256_set1_epi16(static_cast<int16_t>(0x8000))) != 0;
}

// Pass 2: columns of samples, rows 0 4 1 5 2 6 3 7 of each.
inline void second_pass(const PairedRows& x, Wide<V256> z, __m256i* c) {
  const __m256i zero = _mm256_setzero_si256();
  __m256i sums[8];
  paired_sums(x, z.low, &Wide<V256>::low, zero, sums);
  for (int i = 0; i < 8; ++i) c[i] = _mm256_srli_epi32(sums[i], 16);
  paired_sums(x, z.high, &Wide<V256>::high, zero, sums);
  // >> 2 as a product, since shifts have fewer ports.
  for (int i = 0; i < 8; ++i) {
    c[i] = _mm256_mulhi_epi16(_mm256_blend_epi16(c[i], sums[i], 0xAA), _mm256_set1_epi16(1 << 14));
  }
}

// Such columns to rows at out.
inline void store_columns(const __m256i* c, uint8_t* out, size_t stride) {
  const __m256i p0 = _mm256_packus_epi16(c[0], c[4]), p1 = _mm256_packus_epi16(c[1], c[5]);
  const __m256i p2 = _mm256_packus_epi16(c[2], c[6]), p3 = _mm256_packus_epi16(c[3], c[7]);
  const __m256i a0 = _mm256_unpacklo_epi8(p0, p1), a1 = _mm256_unpackhi_epi8(p0, p1);
  const __m256i a2 = _mm256_unpacklo_epi8(p2, p3), a3 = _mm256_unpackhi_epi8(p2, p3);
  const __m256i b0 = _mm256_unpacklo_epi16(a0, a2), b1 = _mm256_unpackhi_epi16(a0, a2);
  const __m256i b2 = _mm256_unpacklo_epi16(a1, a3), b3 = _mm256_unpackhi_epi16(a1, a3);
  const auto rows = [=](__m256i pair_of_rows, size_t row) {
    V256::store_row_pair(pair_of_rows, out + row * stride, out + (row + 4) * stride);
  };
  rows(_mm256_unpacklo_epi32(b0, b2), 0);
  rows(_mm256_unpackhi_epi32(b0, b2), 1);
  rows(_mm256_unpacklo_epi32(b1, b3), 2);
  rows(_mm256_unpackhi_epi32(b1, b3), 3);
}

// Two blocks, multiplied by the steps, to samples: pairs of rows, columns in the order 0 4 2 6 in
// `low` and 1 7 5 3 in `high`, kSmall; starts[b] is kFirstColumnStart and 2^13 DC of block b.
// False, and nothing written: a sum does not fit.
inline bool transform_paired(const PairedRows& x, const int32_t* starts, uint8_t* out,
                             size_t stride) {
  const __m256i dcs = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_cvtsi32_si128(starts[0])),
                                              _mm_cvtsi32_si128(starts[1]), 1);
  const __m256i start = _mm256_set1_epi32(kFirstStart);
  __m256i y[8];
  first_pass(x, _mm256_blend_epi32(start, dcs, 0x11), start, y);
  const PairedRows columns = columns_of(y);
  const Wide<V256> z{_mm256_add_epi16(columns[2].low, columns[3].low),
                     _mm256_add_epi16(columns[2].high, columns[3].high)};
  if (!fit(columns, z)) return false;
  second_pass(columns, z, y);
  store_columns(y, out, stride);
  return true;
}

}  // namespace
}  // namespace fastload

#endif
