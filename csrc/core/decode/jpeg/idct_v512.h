// The operations of idct_simd.h on 512-bit vectors. For files compiled for them.
#pragma once

#if defined(__x86_64__)

#include "base/vectors.h"
#include "decode/jpeg/idct_simd.h"

namespace fastload {
namespace {

struct V512 {
  using T = __m512i;
  static constexpr int kBlocks = 4;
  static T load(const int16_t* p) { return _mm512_loadu_si512(p); }
  static void store(int16_t* p, T v) { _mm512_storeu_si512(p, v); }
  static T repeat_lane(const uint16_t* p) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static T zero() { return _mm512_setzero_si512(); }
  static T set32(int32_t v) { return _mm512_set1_epi32(v); }
  static T set8(int v) { return _mm512_set1_epi8(static_cast<char>(v)); }
  static T add16(T a, T b) { return _mm512_add_epi16(a, b); }
  static T sub16(T a, T b) { return _mm512_sub_epi16(a, b); }
  static T mul16(T a, T b) { return _mm512_mullo_epi16(a, b); }
  template <int kCount>
  static T shift_left16(T a) {
    return _mm512_slli_epi16(a, kCount);
  }
  static T add32(T a, T b) { return _mm512_add_epi32(a, b); }
  static T sub32(T a, T b) { return _mm512_sub_epi32(a, b); }
  template <int kCount>
  static T shift32(T a) {
    return _mm512_srai_epi32(a, kCount);
  }
  static T mul_pairs(T a, T b) { return _mm512_madd_epi16(a, b); }
  static T madd(T sum, T a, T b) { return _mm512_dpwssd_epi32(sum, a, b); }
  static T or_bits(T a, T b) { return _mm512_or_si512(a, b); }
  static T xor_bits(T a, T b) { return _mm512_xor_si512(a, b); }
  static T pack32(T a, T b) { return _mm512_packs_epi32(a, b); }
  static T pack16(T a, T b) { return _mm512_packs_epi16(a, b); }
  static T unpack_low8(T a, T b) { return _mm512_unpacklo_epi8(a, b); }
  static T unpack_high8(T a, T b) { return _mm512_unpackhi_epi8(a, b); }
  static T unpack_low16(T a, T b) { return _mm512_unpacklo_epi16(a, b); }
  static T unpack_high16(T a, T b) { return _mm512_unpackhi_epi16(a, b); }
  static T unpack_low32(T a, T b) { return _mm512_unpacklo_epi32(a, b); }
  static T unpack_high32(T a, T b) { return _mm512_unpackhi_epi32(a, b); }
  static T unpack_low64(T a, T b) { return _mm512_unpacklo_epi64(a, b); }
  static T unpack_high64(T a, T b) { return _mm512_unpackhi_epi64(a, b); }

  using Lanes = __mmask8;  // two bits a lane
  static Lanes zero_lanes(T a) {
    const unsigned empty = _mm512_testn_epi64_mask(a, a);
    const unsigned both = empty & (empty >> 1) & 0x55u;
    return static_cast<Lanes>(both | both << 1);
  }
  static bool all(Lanes m) { return m == 0xFF; }
  static bool any(Lanes m) { return m != 0; }
  static T select(Lanes m, T otherwise, T chosen) {
    return _mm512_mask_mov_epi64(otherwise, m, chosen);
  }

  // Each lane holds 8 samples of two rows.
  static void store_row_pair(T v, uint8_t* first, uint8_t* second) {
    const T rows = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), v);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(first), _mm512_castsi512_si256(rows));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(second), _mm512_extracti64x4_epi64(rows, 1));
  }
};

}  // namespace
}  // namespace fastload

#endif
