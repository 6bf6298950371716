// AVX-512's vector operations for box_blur_simd.h.
#include "transform/pixels/box_blur_kernels.h"

#if defined(__x86_64__)
#include "base/vectors.h"
#include "transform/pixels/box_blur_simd.h"

namespace fastload {
namespace {

// Sums of 32 bits: any reach.
struct Box16 {
  using Sum = __m512i;
  static constexpr int kLanes = 16;

  static Sum load(const uint8_t* from) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static Sum add(Sum a, Sum b) { return _mm512_add_epi32(a, b); }
  static Sum both(const uint8_t* a, const uint8_t* b) { return add(load(a), load(b)); }
  static Sum sub(Sum a, Sum b) { return _mm512_sub_epi32(a, b); }

  struct Weights {
    __m512i inner, outer;
    explicit Weights(const Box& box)
        : inner(_mm512_set1_epi32(static_cast<int>(box.inner))),
          outer(_mm512_set1_epi32(static_cast<int>(box.outer))) {}
    void store(uint8_t* to, Sum sum, Sum far) const {
      const __m512i bulk =
          _mm512_add_epi32(_mm512_mullo_epi32(sum, inner), _mm512_mullo_epi32(far, outer));
      const __m512i rounded = _mm512_add_epi32(bulk, _mm512_set1_epi32(1 << 23));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                       _mm512_cvtepi32_epi8(_mm512_srli_epi32(rounded, 24)));
    }
  };
};

// Sums of 16 bits, to kNarrowReach. A weight is 2^12 high + low, so that vpdpwssd adds up both
// weighted sums of an output.
struct Box64 {
  struct Sum {
    __m512i low, high;  // of the lower and upper halves of 128-bit lanes
  };
  static constexpr int kLanes = 64;

  static Sum load(const uint8_t* from) {
    const __m512i bytes = _mm512_loadu_si512(from);
    const __m512i zero = _mm512_setzero_si512();
    return {_mm512_unpacklo_epi8(bytes, zero), _mm512_unpackhi_epi8(bytes, zero)};
  }
  // The sum of two bytes.
  static Sum both(const uint8_t* a, const uint8_t* b) {
    const __m512i left = _mm512_loadu_si512(a);
    const __m512i right = _mm512_loadu_si512(b);
    const __m512i one = _mm512_set1_epi8(1);
    return {_mm512_maddubs_epi16(_mm512_unpacklo_epi8(left, right), one),
            _mm512_maddubs_epi16(_mm512_unpackhi_epi8(left, right), one)};
  }
  static Sum add(Sum a, Sum b) {
    return {_mm512_add_epi16(a.low, b.low), _mm512_add_epi16(a.high, b.high)};
  }
  static Sum sub(Sum a, Sum b) {
    return {_mm512_sub_epi16(a.low, b.low), _mm512_sub_epi16(a.high, b.high)};
  }

  struct Weights {
    __m512i high, low;
    explicit Weights(const Box& box)
        : high(_mm512_set1_epi32(static_cast<int>(box.inner >> 12 | box.outer >> 12 << 16))),
          low(_mm512_set1_epi32(
              static_cast<int>((box.inner & 0xFFF) | (box.outer & 0xFFF) << 16))) {}
    [[nodiscard]] __m512i of(__m512i pairs) const {
      const __m512i upper = _mm512_dpwssd_epi32(_mm512_set1_epi32(1 << 11), pairs, high);
      return _mm512_srli_epi32(_mm512_dpwssd_epi32(_mm512_slli_epi32(upper, 12), pairs, low), 24);
    }
    [[nodiscard]] __m512i of(__m512i sum, __m512i far) const {
      return _mm512_packs_epi32(of(_mm512_unpacklo_epi16(sum, far)),
                                of(_mm512_unpackhi_epi16(sum, far)));
    }
    void store(uint8_t* to, Sum sum, Sum far) const {
      _mm512_storeu_si512(to, _mm512_packus_epi16(of(sum.low, far.low), of(sum.high, far.high)));
    }
  };
};

}  // namespace

void box_blur_avx512(const Box& box, const Picture& picture, uint8_t* scratch) {
  box.reach <= kNarrowReach ? box_blur<Box64>(box, picture, scratch)
                            : box_blur<Box16>(box, picture, scratch);
}

}  // namespace fastload
#endif
