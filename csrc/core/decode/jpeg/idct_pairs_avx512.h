// The inverse DCT on pairs of rows, four blocks at a time. For files compiled for AVX-512.
//
// The values of both rows of a pair lie side by side, as vpdpwssd takes them: nothing is
// interleaved for the first pass. The second pass is along rows, so it broadcasts pairs inside a
// lane, and nothing is transposed. Columns are in the order 0 2 4 6 1 3 5 7, in which pairs are
// either even or odd. Sums are libjpeg's own, in another order and modulo 2^32.
//
// But libjpeg-turbo adds x0 + x4, x0 - x4, x3 + x7 and x1 + x5 in 16 bits, and blocks that have
// only a first row take a short cut, which differs where 16 bits overflow. The results of the first
// pass show both. Its sums fit into 32 bits for any input. Sum 0 + sum 3 is 2^14 (x0 + x4), and sum
// 1 + sum 2 the same of the difference: if one of these overflows, some result is beyond 16 bits.
// The odd part multiplies lengths by 2^14, so where x3 + x7 overflow, one of its four sums is
// larger than 2^27, and again some result beyond 16 bits. The short cut's results are 4 x0. So
// where all results are within 15 bits nothing has overflowed, nor will it in the second pass;
// otherwise there is transform_dequantised().
#pragma once

#if defined(__x86_64__)

#include <array>

#include "base/vectors.h"
#include "decode/jpeg/idct_v512.h"

namespace fastload {
namespace {

// Of four blocks and pair i, vector 2 * i has the even columns of each block in a lane, 2 * i + 1
// the odd ones. Steps in natural order as such vectors; returns all of them, or'ed.
inline __m128i load_pair_steps(const uint16_t* steps, __m512i* paired) {
  const auto row = [steps](size_t r) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(steps + 8 * r));
  };
  __m128i all = _mm_setzero_si128();
  for (size_t i = 0; i < 4; ++i) {
    const __m128i a = row(kPairRows[i][0]), b = row(kPairRows[i][1]);
    all = _mm_or_si128(all, _mm_or_si128(a, b));
    paired[2 * i] = _mm512_broadcast_i32x4(_mm_blend_epi16(a, _mm_slli_epi32(b, 16), 0xAA));
    paired[2 * i + 1] = _mm512_broadcast_i32x4(_mm_blend_epi16(_mm_srli_epi32(a, 16), b, 0xAA));
  }
  return all;
}

// Whether every word is within [-2^14, 2^14).
[[gnu::always_inline]] inline bool within_15_bits(const __m512i* x) {
  const __m512i offset = _mm512_set1_epi16(0x4000);
  __m512i all = _mm512_add_epi16(x[0], offset);
  for (size_t i = 1; i < 8; ++i) all = _mm512_or_si512(all, _mm512_add_epi16(x[i], offset));
  return _mm512_movepi16_mask(all) == 0;
}
// The first pass: from dequantised pairs of rows to rows.
[[gnu::always_inline]] inline void transform_down(const __m512i* x, __m512i* out) {
  const auto pair = [](size_t index) { return _mm512_set1_epi32(kIdctPairsOfRows[index]); };
  __m512i rows[2][8];
  for (size_t half = 0; half < 2; ++half) {
    const __m512i in04 = x[half], in26 = x[2 + half], in13 = x[4 + half], in57 = x[6 + half];
    const __m512i rounding = _mm512_set1_epi32(1 << 10);
    const __m512i even0 = _mm512_dpwssd_epi32(rounding, in04, pair(0));
    const __m512i even1 = _mm512_dpwssd_epi32(rounding, in04, pair(1));
    const __m512i sums[4] = {
        _mm512_dpwssd_epi32(even0, in26, pair(2)), _mm512_dpwssd_epi32(even1, in26, pair(3)),
        _mm512_dpwssd_epi32(even1, in26, pair(4)), _mm512_dpwssd_epi32(even0, in26, pair(5))};
    for (size_t k = 0; k < 4; ++k) {
      const __m512i odd =
          _mm512_dpwssd_epi32(_mm512_madd_epi16(in13, pair(6 + 2 * k)), in57, pair(7 + 2 * k));
      rows[half][k] = _mm512_srai_epi32(_mm512_add_epi32(sums[k], odd), 11);
      rows[half][7 - k] = _mm512_srai_epi32(_mm512_sub_epi32(sums[k], odd), 11);
    }
  }
  for (size_t row = 0; row < 8; ++row) out[row] = _mm512_packs_epi32(rows[0][row], rows[1][row]);
}

// A row of each block in the order of the columns to its samples, 16 bits each.
[[gnu::always_inline]] inline __m512i transform_row(__m512i row) {
  const auto lane = [](size_t index) {
    return _mm512_broadcast_i32x4(
        _mm_load_si128(reinterpret_cast<const __m128i*>(kIdctPairsOfColumns[index].data())));
  };
  alignas(64) static constexpr std::array<uint16_t, 32> kOrder = [] {
    std::array<uint16_t, 32> order{};
    for (size_t i = 0; i < 32; ++i) {
      const size_t k = i % 8, from = i / 8 * 8;
      order[i] = static_cast<uint16_t>(k < 4 ? from + 2 * k + 1 : 32 + from + 2 * (7 - k) + 1);
    }
    return order;
  }();
  // 128, to be unsigned, and half.
  const __m512i bias = _mm512_set1_epi32((128 << 18) + (1 << 17));
  __m512i even = _mm512_dpwssd_epi32(bias, _mm512_shuffle_epi32(row, _MM_PERM_AAAA), lane(0));
  even = _mm512_dpwssd_epi32(even, _mm512_shuffle_epi32(row, _MM_PERM_BBBB), lane(1));
  __m512i odd = _mm512_madd_epi16(_mm512_shuffle_epi32(row, _MM_PERM_CCCC), lane(2));
  odd = _mm512_dpwssd_epi32(odd, _mm512_shuffle_epi32(row, _MM_PERM_DDDD), lane(3));
  const __m512i highs = _mm512_permutex2var_epi16(
      _mm512_add_epi32(even, odd), _mm512_load_si512(kOrder.data()), _mm512_sub_epi32(even, odd));
  return _mm512_srai_epi16(highs, 2);
}

// The second pass: rows of the first, within 15 bits, to 8 rows of samples.
[[gnu::always_inline]] inline void transform_across(const __m512i* rows, uint8_t* out,
                                                    size_t stride) {
  for (size_t row = 0; row < 8; row += 2) {
    V512::store_row_pair(
        _mm512_packus_epi16(transform_row(rows[row]), transform_row(rows[row + 1])),
        out + row * stride, out + (row + 1) * stride);
  }
}

// Rows in the order of transform_dequantised().
inline void rows_of_pairs(const __m512i* pairs, __m512i* x) {
  alignas(64) static constexpr auto kRows = [] {
    std::array<std::array<uint16_t, 32>, 2> rows{};
    for (size_t which = 0; which < 2; ++which) {
      for (size_t i = 0; i < 32; ++i) {
        const size_t column = i % 8, from = i / 8 * 8;
        rows[which][i] = static_cast<uint16_t>(32 * (column % 2) + from + column / 2 * 2 + which);
      }
    }
    return rows;
  }();
  for (size_t i = 0; i < 4; ++i) {
    for (size_t which = 0; which < 2; ++which) {
      x[kPairRows[i][which]] = _mm512_permutex2var_epi16(
          pairs[2 * i], _mm512_load_si512(kRows[which].data()), pairs[2 * i + 1]);
    }
  }
}

}  // namespace
}  // namespace fastload

#endif
