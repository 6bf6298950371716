// The resize with AVX2. A 23-bit weight is w = 2^15 high + low, low in [0, 2^15), high in 9 bits,
// so that pmaddwd (two 16-bit products, summed exactly into 32 bits) does two taps at once, and
// 2^15 (p.high) + p.low + half is Pillow's integer sum. Its bits from 22 on are those of
// (p.high + p.low / 2^15 + 2^6) / 2^7, rounded down each time: the last step is left to 16 bits.
#include "transform/kernels.h"

#if defined(__x86_64__)
#include "base/vectors.h"
#include "transform/axis.h"

namespace fastload {
namespace {

constexpr int kLowBits = 15;
constexpr int kPair = 2;    // taps of a product
constexpr int kBlock = 8;   // output pixels whose results are packed and stored together
constexpr int kVector = 8;  // 32-bit lanes of a vector

__m256i load(const int32_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
void store(int32_t* to, __m256i value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
}

struct Pairs {
  __m256i low, high;
};

// The weights of taps t and t + 1 for outputs j .. j + 7, two to a lane.
Pairs split_weights(const Axis& axis, int t, int j) {
  const __m256i even = load(axis.weights.data() + static_cast<size_t>(t) * axis.stride + j);
  const __m256i odd = load(axis.weights.data() + static_cast<size_t>(t + 1) * axis.stride + j);
  const __m256i low_bits = _mm256_set1_epi32((1 << kLowBits) - 1);
  const auto pair = [](__m256i a, __m256i b) {
    return _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xAA);
  };
  return {pair(_mm256_and_si256(even, low_bits), _mm256_and_si256(odd, low_bits)),
          pair(_mm256_srai_epi32(even, kLowBits), _mm256_srai_epi32(odd, kLowBits))};
}

// packed, horizontal: for each block of 8 outputs, for i < 4, for each pair of taps, two vectors
// (low and high) for outputs i (lower lane) and i + 4 (upper lane), the same weights for R, G and
// B.
void pack_horizontal(Axis& axis) {
  const int pairs = axis.taps / kPair;
  const size_t per_block = static_cast<size_t>(8) * kVector * pairs;
  axis.packed.reserve(per_block * (axis.stride / kBlock));
  for (int block = 0; block < axis.stride / kBlock; ++block) {
    for (int pair = 0; pair < pairs; ++pair) {
      const Pairs parts = split_weights(axis, kPair * pair, block * kBlock);
      for (int i = 0; i < 4; ++i) {
        const __m256i spread = _mm256_setr_epi32(i, i, i, i, i + 4, i + 4, i + 4, i + 4);
        int32_t* to = axis.packed.data() + per_block * block +
                      static_cast<size_t>(2 * kVector) * (i * pairs + pair);
        store(to, _mm256_permutevar8x32_epi32(parts.low, spread));
        store(to + kVector, _mm256_permutevar8x32_epi32(parts.high, spread));
      }
    }
  }
}

// The sums without their lowest 15 bits. Fixed: pairs of taps, or 0. Of more than 257 taps `low`
// may overflow; the whole sum never does.
template <int Fixed>
__m256i combine(__m256i low, __m256i high) {
  if constexpr (Fixed > 0) return _mm256_add_epi32(_mm256_srai_epi32(low, kLowBits), high);
  return _mm256_srai_epi32(_mm256_add_epi32(low, _mm256_slli_epi32(high, kLowBits)), kLowBits);
}

// Such sums, rounded: what 16 bits do not hold is below 0 or above 255 in any case.
__m256i round(__m256i a, __m256i b) {
  constexpr int kLeft = kPrecisionBits - kLowBits;
  return _mm256_mulhrs_epi16(_mm256_packs_epi32(a, b), _mm256_set1_epi16(1 << (15 - kLeft)));
}

// Outputs first[0] and first[4] of `Rows` lines into sums[row].
template <int Fixed, int Rows>
inline __attribute__((always_inline)) void two_outputs(const uint8_t* const* in,
                                                       const int32_t* first, const int32_t* weights,
                                                       int pairs, __m256i (&sums)[Rows]) {
  const __m256i taps01 = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1,
                                          0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
  const __m256i taps23 =
      _mm256_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1, 6, -1, 9, -1, 7,
                       -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
  size_t left = 3 * static_cast<size_t>(first[0]);
  size_t right = 3 * static_cast<size_t>(first[4]);
  __m256i low[Rows];
  __m256i high[Rows];
  for (int r = 0; r < Rows; ++r) low[r] = high[r] = _mm256_setzero_si256();
  const auto add = [&](int r, __m256i pixels, __m256i taps, const int32_t* from) {
    const __m256i two = _mm256_shuffle_epi8(pixels, taps);
    low[r] = _mm256_add_epi32(low[r], _mm256_madd_epi16(two, load(from)));
    high[r] = _mm256_add_epi32(high[r], _mm256_madd_epi16(two, load(from + kVector)));
  };
  const int count = Fixed > 0 ? Fixed : pairs;
  for (int pair = 0; pair < count; pair += 2) {
    for (int r = 0; r < Rows; ++r) {
      const __m256i pixels = _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(in[r] + right),
                                                 reinterpret_cast<const __m128i*>(in[r] + left));
      add(r, pixels, taps01, weights);
      if (pair + 1 < count) add(r, pixels, taps23, weights + 2 * kVector);
    }
    weights += 4 * kVector;
    left += 6 * kPair;
    right += 6 * kPair;
  }
  for (int r = 0; r < Rows; ++r) sums[r] = combine<Fixed>(low[r], high[r]);
}

void store_block(uint8_t* to, const __m256i* sums) {
  const __m256i drop_fourth =
      _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1, 0, 1, 2, 4, 5, 6, 8,
                       9, 10, 12, 13, 14, -1, -1, -1, -1);
  const __m256i bytes = _mm256_packus_epi16(round(sums[0], sums[1]), round(sums[2], sums[3]));
  const __m256i pixels = _mm256_shuffle_epi8(bytes, drop_fourth);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(pixels));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 12), _mm256_extracti128_si256(pixels, 1));
}

// `Rows` lines at a time share the loads of weights and offsets. Fixed: pairs of taps, 0: as many
// as the axis has.
template <int Fixed, int Rows>
void lines(const Axis& axis, const uint8_t* const* in, uint8_t* const* out) {
  const int pairs = Fixed > 0 ? Fixed : axis.taps / kPair;
  const size_t step = static_cast<size_t>(2 * kVector) * pairs;
  const int32_t* weights = axis.packed.data();
  for (int j = 0; j < axis.stride; j += kBlock) {
    __m256i sums[Rows][4];
    for (int i = 0; i < 4; ++i, weights += step) {
      __m256i result[Rows];
      two_outputs<Fixed, Rows>(in, axis.first.data() + j + i, weights, pairs, result);
      for (int r = 0; r < Rows; ++r) sums[r][i] = result[r];
    }
    for (int r = 0; r < Rows; ++r) store_block(out[r] + 3 * static_cast<size_t>(j), sums[r]);
  }
}

template <int Fixed>
void all_lines(const Axis& axis, const uint8_t* const* in, uint8_t* const* out, int rows) {
  if (rows == ResampleKernels::kBatch) {
    return lines<Fixed, ResampleKernels::kBatch>(axis, in, out);
  }
  for (int i = 0; i + 1 < rows; i += 2) lines<Fixed, 2>(axis, in + i, out + i);
  if (rows % 2 == 1) lines<Fixed, 1>(axis, in + rows - 1, out + rows - 1);
}

void horizontal(const Axis& axis, const uint8_t* const* in, uint8_t* const* out, int rows) {
  if (axis.taps == kPair) return all_lines<1>(axis, in, out, rows);
  if (axis.taps == 2 * kPair) return all_lines<2>(axis, in, out, rows);
  if (axis.taps == 3 * kPair) return all_lines<3>(axis, in, out, rows);
  all_lines<0>(axis, in, out, rows);
}

// packed[(2 * pair + part) * stride + j]: low (part 0) and high (1) weights of taps 2 * pair, + 1.
void pack_vertical(Axis& axis) {
  axis.packed.reserve(static_cast<size_t>(axis.taps) * axis.stride);
  for (int t = 0; t < axis.taps; t += 2) {
    for (int j = 0; j < axis.stride; j += kVector) {
      const Pairs pairs = split_weights(axis, t, j);
      store(axis.packed.data() + static_cast<size_t>(t) * axis.stride + j, pairs.low);
      store(axis.packed.data() + static_cast<size_t>(t + 1) * axis.stride + j, pairs.high);
    }
  }
}

template <int Pairs>
void vertical_line(const Axis& axis, int j, const uint8_t* const* in, size_t bytes, uint8_t* out) {
  const int pairs = Pairs > 0 ? Pairs : axis.taps / 2;
  const __m256i zero = _mm256_setzero_si256();
  for (size_t x = 0; x < bytes; x += 32) {
    __m256i low[4];
    __m256i high[4];
    for (int i = 0; i < 4; ++i) low[i] = high[i] = zero;
    const int32_t* weights = axis.packed.data() + j;
    for (int pair = 0; pair < pairs; ++pair, weights += 2 * static_cast<size_t>(axis.stride)) {
      const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in[2 * pair] + x));
      const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in[2 * pair + 1] + x));
      const __m256i left = _mm256_unpacklo_epi8(a, b);
      const __m256i right = _mm256_unpackhi_epi8(a, b);
      const __m256i words[4] = {_mm256_unpacklo_epi8(left, zero), _mm256_unpackhi_epi8(left, zero),
                                _mm256_unpacklo_epi8(right, zero),
                                _mm256_unpackhi_epi8(right, zero)};
      const __m256i low_weights = _mm256_set1_epi32(weights[0]);
      const __m256i high_weights = _mm256_set1_epi32(weights[axis.stride]);
      for (int i = 0; i < 4; ++i) {
        low[i] = _mm256_add_epi32(low[i], _mm256_madd_epi16(words[i], low_weights));
        high[i] = _mm256_add_epi32(high[i], _mm256_madd_epi16(words[i], high_weights));
      }
    }
    const __m256i front = round(combine<Pairs>(low[0], high[0]), combine<Pairs>(low[1], high[1]));
    const __m256i back = round(combine<Pairs>(low[2], high[2]), combine<Pairs>(low[3], high[3]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x), _mm256_packus_epi16(front, back));
  }
}

void vertical(const Axis& axis, int j, const uint8_t* const* in, size_t bytes, uint8_t* out) {
  if (axis.taps == 2) return vertical_line<1>(axis, j, in, bytes, out);
  if (axis.taps == 4) return vertical_line<2>(axis, j, in, bytes, out);
  vertical_line<0>(axis, j, in, bytes, out);
}

}  // namespace

const ResampleKernels kAvx2Resample{kPair,         kPair,      avx2::fill_axis, pack_horizontal,
                                    pack_vertical, horizontal, vertical};

}  // namespace fastload
#endif
