// The values of a list from its planes, 256 at a time, with AVX2. For files compiled for it.
//
// The planes of a magnitude are turned into its binary digits first, a word of 64 values at a time:
// with d levels, S_d is the highest digit of what is d levels deep. Then 8 digits of each value
// become a byte: in all vectors, bits change places as in the transposition of an 8 x 8 matrix.
#pragma once

#if defined(__x86_64__)

#include "base/vectors.h"
#include "decode/coefficients/segment_reader.h"

namespace fastload {
namespace {

constexpr size_t kGroupWords = 4;  // of a plane, in a vector

// Digit b of 256 values into digits[b], and their signs into the last: 7 digits for bytes, 15 for
// two.
template <size_t kDigits>
inline void load_digits(const ValuePlanes& planes, size_t word, __m256i (&digits)[kDigits]) {
  const auto load = [word](const ValuePlanes::Plane& plane) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&plane[word]));
  };
  for (__m256i& digit : digits) digit = _mm256_setzero_si256();
  const auto rice = static_cast<size_t>(planes.rice), deepest = static_cast<size_t>(planes.deepest);
  for (size_t bit = 0; bit < rice; ++bit) digits[bit] = load(planes.raw[bit]);
  __m256i level = _mm256_set1_epi32(-1);
  for (size_t bit = 0; bit < deepest; ++bit) {
    const __m256i next = load(planes.deep[bit + 1]);
    digits[rice + bit] = _mm256_or_si256(_mm256_andnot_si256(next, level), load(planes.low[bit]));
    level = next;
  }
  digits[rice + deepest] = level;
  digits[kDigits - 1] = load(planes.sign);
}

// Bits kShift of the places in `a` and the others in `b` change places.
template <int kShift>
inline void swap_bits(__m256i& a, __m256i& b, __m256i mask) {
  const __m256i moved = _mm256_and_si256(_mm256_xor_si256(_mm256_srli_epi16(a, kShift), b), mask);
  b = _mm256_xor_si256(b, moved);
  a = _mm256_xor_si256(a, _mm256_slli_epi16(moved, kShift));
}

// Eight planes to bytes: values 32 i .. 32 i + 31 in bytes[i].
inline void bytes_of(const __m256i* planes, __m256i* bytes) {
  __m256i p[8];
  for (size_t i = 0; i < 8; ++i) p[i] = planes[i];
  const __m256i ones = _mm256_set1_epi8(0x55), twos = _mm256_set1_epi8(0x33),
                fours = _mm256_set1_epi8(0x0F);
  for (size_t i = 0; i < 8; i += 2) swap_bits<1>(p[i], p[i + 1], ones);
  for (size_t i : {0, 1, 4, 5}) swap_bits<2>(p[i], p[i + 2], twos);
  for (size_t i = 0; i < 4; ++i) swap_bits<4>(p[i], p[i + 4], fours);
  // Byte k of p[i] is value 8 k + i.
  __m256i a[8], b[8];
  for (size_t i = 0; i < 4; ++i) {
    a[i] = _mm256_unpacklo_epi8(p[2 * i], p[2 * i + 1]);
    a[i + 4] = _mm256_unpackhi_epi8(p[2 * i], p[2 * i + 1]);
  }
  for (size_t i = 0; i < 8; i += 4) {
    b[i] = _mm256_unpacklo_epi16(a[i], a[i + 1]), b[i + 1] = _mm256_unpackhi_epi16(a[i], a[i + 1]);
    b[i + 2] = _mm256_unpacklo_epi16(a[i + 2], a[i + 3]);
    b[i + 3] = _mm256_unpackhi_epi16(a[i + 2], a[i + 3]);
  }
  for (size_t i = 0; i < 4; ++i) {
    const size_t from = i / 2 * 4 + i % 2;
    const __m256i low = _mm256_unpacklo_epi32(b[from], b[from + 2]);
    const __m256i high = _mm256_unpackhi_epi32(b[from], b[from + 2]);
    bytes[i] = _mm256_permute2x128_si256(low, high, 0x20);
    bytes[i + 4] = _mm256_permute2x128_si256(low, high, 0x31);
  }
}

inline void store32(void* to, __m256i values) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), values);
}

// The digits say 2^rice - 1 more than a magnitude, which is never 0.
inline void store_values8(const ValuePlanes& planes, size_t word, int8_t* to) {
  __m256i digits[8];
  load_digits(planes, word, digits);
  __m256i bytes[8];
  bytes_of(digits, bytes);
  const __m256i less = _mm256_set1_epi8(static_cast<char>(1 - (1 << planes.rice)));
  for (size_t i = 0; i < 8; ++i) {
    const __m256i magnitude =
        _mm256_add_epi8(_mm256_and_si256(bytes[i], _mm256_set1_epi8(0x7F)), less);
    store32(to + 32 * i, _mm256_sign_epi8(magnitude, bytes[i]));
  }
}

inline void store_values16(const ValuePlanes& planes, size_t word, int8_t* low, int8_t* high) {
  __m256i digits[16];
  load_digits(planes, word, digits);
  __m256i lows[8], highs[8];
  bytes_of(digits, lows);
  bytes_of(digits + 8, highs);
  const __m256i less = _mm256_set1_epi16(static_cast<int16_t>(1 - (1 << planes.rice)));
  const auto value = [less](__m256i digits_and_sign) {
    const __m256i magnitude =
        _mm256_add_epi16(_mm256_and_si256(digits_and_sign, _mm256_set1_epi16(0x7FFF)), less);
    return _mm256_sign_epi16(magnitude, digits_and_sign);
  };
  const __m256i byte = _mm256_set1_epi16(0xFF);
  for (size_t i = 0; i < 8; ++i) {
    const __m256i first = value(_mm256_unpacklo_epi8(lows[i], highs[i]));
    const __m256i second = value(_mm256_unpackhi_epi8(lows[i], highs[i]));
    store32(low + 32 * i,
            _mm256_packus_epi16(_mm256_and_si256(first, byte), _mm256_and_si256(second, byte)));
    store32(high + 32 * i,
            _mm256_packs_epi16(_mm256_srai_epi16(first, 8), _mm256_srai_epi16(second, 8)));
  }
}

}  // namespace
}  // namespace fastload

#endif
