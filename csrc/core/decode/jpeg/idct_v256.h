// The operations of idct_simd.h on 256-bit vectors. For files compiled for them.
#pragma once

#if defined(__x86_64__)

#include "base/vectors.h"
#include "decode/jpeg/idct_simd.h"

namespace fastload {
namespace {

struct V256 {
  using T = __m256i;
  static constexpr int kBlocks = 2;
  static T load(const int16_t* p) { return _mm256_loadu_si256(reinterpret_cast<const T*>(p)); }
  static void store(int16_t* p, T v) { _mm256_storeu_si256(reinterpret_cast<T*>(p), v); }
  static T repeat_lane(const uint16_t* p) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static T zero() { return _mm256_setzero_si256(); }
  static T set32(int32_t v) { return _mm256_set1_epi32(v); }
  static T set8(int v) { return _mm256_set1_epi8(static_cast<char>(v)); }
  static T add16(T a, T b) { return _mm256_add_epi16(a, b); }
  static T sub16(T a, T b) { return _mm256_sub_epi16(a, b); }
  static T mul16(T a, T b) { return _mm256_mullo_epi16(a, b); }
  template <int kCount>
  static T shift_left16(T a) {
    return _mm256_slli_epi16(a, kCount);
  }
  static T add32(T a, T b) { return _mm256_add_epi32(a, b); }
  static T sub32(T a, T b) { return _mm256_sub_epi32(a, b); }
  template <int kCount>
  static T shift32(T a) {
    return _mm256_srai_epi32(a, kCount);
  }
  static T mul_pairs(T a, T b) { return _mm256_madd_epi16(a, b); }
  static T madd(T sum, T a, T b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }
  static T or_bits(T a, T b) { return _mm256_or_si256(a, b); }
  static T xor_bits(T a, T b) { return _mm256_xor_si256(a, b); }
  static T pack32(T a, T b) { return _mm256_packs_epi32(a, b); }
  static T pack16(T a, T b) { return _mm256_packs_epi16(a, b); }
  static T unpack_low8(T a, T b) { return _mm256_unpacklo_epi8(a, b); }
  static T unpack_high8(T a, T b) { return _mm256_unpackhi_epi8(a, b); }
  static T unpack_low16(T a, T b) { return _mm256_unpacklo_epi16(a, b); }
  static T unpack_high16(T a, T b) { return _mm256_unpackhi_epi16(a, b); }
  static T unpack_low32(T a, T b) { return _mm256_unpacklo_epi32(a, b); }
  static T unpack_high32(T a, T b) { return _mm256_unpackhi_epi32(a, b); }
  static T unpack_low64(T a, T b) { return _mm256_unpacklo_epi64(a, b); }
  static T unpack_high64(T a, T b) { return _mm256_unpackhi_epi64(a, b); }

  using Lanes = T;  // all ones in a chosen lane
  static Lanes zero_lanes(T a) {
    const T empty = _mm256_cmpeq_epi64(a, zero());
    return _mm256_and_si256(empty, _mm256_shuffle_epi32(empty, _MM_SHUFFLE(1, 0, 3, 2)));
  }
  static bool all(Lanes m) { return _mm256_movemask_epi8(m) == -1; }
  static bool any(Lanes m) { return _mm256_testz_si256(m, m) == 0; }
  static T select(Lanes m, T otherwise, T chosen) {
    return _mm256_blendv_epi8(otherwise, chosen, m);
  }

  // Each lane holds 8 samples of two rows.
  static void store_row_pair(T v, uint8_t* first, uint8_t* second) {
    const T rows = _mm256_permute4x64_epi64(v, _MM_SHUFFLE(3, 1, 2, 0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(first), _mm256_castsi256_si128(rows));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(second), _mm256_extracti128_si256(rows, 1));
  }
};

// pass() in fewer operations, since pmaddwd alone does not add to a sum here: the rounding comes in
// beside x0 +- x4, and what x2 and x6 give is added to one sum and taken from the other.
template <int kShift>
inline void pass256(__m256i* x) {
  using V = V256;
  constexpr int kOne = kShift == 11 ? 1 : 16;
  static_assert((1 << (kShift - 1)) % kOne == 0 && (1 << (kShift - 1)) / kOne <= 8192);
  constexpr int32_t kEven = idct_pair(8192, (1 << (kShift - 1)) / kOne);
  const __m256i one = _mm256_set1_epi16(kOne);
  const Wide<V> even0 = product<V>(interleave<V>(V::add16(x[0], x[4]), one), kEven);
  const Wide<V> even1 = product<V>(interleave<V>(V::sub16(x[0], x[4]), one), kEven);
  const Wide<V> in26 = interleave<V>(x[2], x[6]);
  const Wide<V> a = product<V>(in26, idct_pair(10703, 4433)),
                b = product<V>(in26, idct_pair(4433, -10704));
  const auto sum = [](Wide<V> p, Wide<V> q) {
    return Wide<V>{V::add32(p.low, q.low), V::add32(p.high, q.high)};
  };
  const auto difference = [](Wide<V> p, Wide<V> q) {
    return Wide<V>{V::sub32(p.low, q.low), V::sub32(p.high, q.high)};
  };
  const Wide<V> z = interleave<V>(V::add16(x[3], x[7]), V::add16(x[1], x[5]));
  const Wide<V> odd_a = product<V>(z, idct_pair(-6436, 9633));
  const Wide<V> odd_b = product<V>(z, idct_pair(9633, 6437));
  const Wide<V> in71 = interleave<V>(x[7], x[1]);
  const Wide<V> in53 = interleave<V>(x[5], x[3]);
  butterfly<V, kShift>(sum(even0, a), madd<V>(odd_b, in71, idct_pair(-7373, 4926)), x[0], x[7]);
  butterfly<V, kShift>(sum(even1, b), madd<V>(odd_a, in53, idct_pair(-20995, 4177)), x[1], x[6]);
  butterfly<V, kShift>(difference(even1, b), madd<V>(odd_b, in53, idct_pair(-4176, -20995)), x[2],
                       x[5]);
  butterfly<V, kShift>(difference(even0, a), madd<V>(odd_a, in71, idct_pair(-4927, -7373)), x[3],
                       x[4]);
}
template <>
inline void pass<V256, 11>(__m256i* x) {
  pass256<11>(x);
}
template <>
inline void pass<V256, 18>(__m256i* x) {
  pass256<18>(x);
}

}  // namespace
}  // namespace fastload

#endif
