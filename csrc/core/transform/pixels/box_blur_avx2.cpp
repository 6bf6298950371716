// AVX2's vector operations for box_blur_simd.h.
#include "transform/pixels/box_blur_kernels.h"

#if defined(__x86_64__)
#include "base/vectors.h"
#include "transform/pixels/box_blur_simd.h"

namespace fastload {
namespace {

// Sums of 32 bits: any reach.
struct Box8 {
  using Sum = __m256i;
  static constexpr int kLanes = 8;

  static Sum load(const uint8_t* from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }
  static Sum add(Sum a, Sum b) { return _mm256_add_epi32(a, b); }
  static Sum both(const uint8_t* a, const uint8_t* b) { return add(load(a), load(b)); }
  static Sum sub(Sum a, Sum b) { return _mm256_sub_epi32(a, b); }

  struct Weights {
    __m256i inner, outer;
    explicit Weights(const Box& box)
        : inner(_mm256_set1_epi32(static_cast<int>(box.inner))),
          outer(_mm256_set1_epi32(static_cast<int>(box.outer))) {}
    void store(uint8_t* to, Sum sum, Sum far) const {
      const __m256i bulk =
          _mm256_add_epi32(_mm256_mullo_epi32(sum, inner), _mm256_mullo_epi32(far, outer));
      const __m256i top = _mm256_srli_epi32(_mm256_add_epi32(bulk, _mm256_set1_epi32(1 << 23)), 24);
      const __m128i words =
          _mm_packus_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(words, words));
    }
  };
};

// Sums of 16 bits, to kNarrowReach. A weight is 2^12 high + low, so that pmaddwd adds up both
// weighted sums of an output.
struct Box32 {
  struct Sum {
    __m256i low, high;  // of the lower and upper halves of 128-bit lanes
  };
  static constexpr int kLanes = 32;

  static Sum load(const uint8_t* from) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m256i zero = _mm256_setzero_si256();
    return {_mm256_unpacklo_epi8(bytes, zero), _mm256_unpackhi_epi8(bytes, zero)};
  }
  // The sum of two bytes.
  static Sum both(const uint8_t* a, const uint8_t* b) {
    const __m256i left = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a));
    const __m256i right = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
    const __m256i one = _mm256_set1_epi8(1);
    return {_mm256_maddubs_epi16(_mm256_unpacklo_epi8(left, right), one),
            _mm256_maddubs_epi16(_mm256_unpackhi_epi8(left, right), one)};
  }
  static Sum add(Sum a, Sum b) {
    return {_mm256_add_epi16(a.low, b.low), _mm256_add_epi16(a.high, b.high)};
  }
  static Sum sub(Sum a, Sum b) {
    return {_mm256_sub_epi16(a.low, b.low), _mm256_sub_epi16(a.high, b.high)};
  }

  struct Weights {
    __m256i high, low;
    explicit Weights(const Box& box)
        : high(_mm256_set1_epi32(static_cast<int>(box.inner >> 12 | box.outer >> 12 << 16))),
          low(_mm256_set1_epi32(
              static_cast<int>((box.inner & 0xFFF) | (box.outer & 0xFFF) << 16))) {}
    [[nodiscard]] __m256i of(__m256i pairs) const {
      const __m256i upper =
          _mm256_add_epi32(_mm256_madd_epi16(pairs, high), _mm256_set1_epi32(1 << 11));
      const __m256i whole =
          _mm256_add_epi32(_mm256_slli_epi32(upper, 12), _mm256_madd_epi16(pairs, low));
      return _mm256_srli_epi32(whole, 24);
    }
    [[nodiscard]] __m256i of(__m256i sum, __m256i far) const {
      return _mm256_packs_epi32(of(_mm256_unpacklo_epi16(sum, far)),
                                of(_mm256_unpackhi_epi16(sum, far)));
    }
    void store(uint8_t* to, Sum sum, Sum far) const {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                          _mm256_packus_epi16(of(sum.low, far.low), of(sum.high, far.high)));
    }
  };
};

}  // namespace

void box_blur_avx2(const Box& box, const Picture& picture, uint8_t* scratch) {
  box.reach <= kNarrowReach ? box_blur<Box32>(box, picture, scratch)
                            : box_blur<Box8>(box, picture, scratch);
}

}  // namespace fastload
#endif
