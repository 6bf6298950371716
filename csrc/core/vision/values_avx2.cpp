// AVX2's vector operations for values_simd.h.
#include "vision/values.h"

#if defined(__x86_64__)
#include "base/vectors.h"
#include "vision/values_simd.h"

namespace fastload {
namespace {

struct Values8 {
  using Float = __m256;
  static constexpr size_t kLanes = 8;

  struct Float32 {
    using Element = float;
    static void store(Element* to, Float value) { _mm256_storeu_ps(to, value); }
    static void store_some(Element* to, Float value, size_t count) {
      const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
      const __m256i end = _mm256_set1_epi32(static_cast<int>(count));
      _mm256_maskstore_ps(to, _mm256_cmpgt_epi32(end, lane), value);
    }
  };
  struct Bfloat16 {
    using Element = uint16_t;
    static __m128i rounded(Float value) {
      const __m256i bits = _mm256_castps_si256(value);
      const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
      const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
      const __m256i upper = _mm256_srli_epi32(sum, 16);
      return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
    }
    static void store(Element* to, Float value) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), rounded(value));
    }
    static void store_some(Element* to, Float value, size_t count) {
      Element all[kLanes];
      store(all, value);
      std::memcpy(to, all, count * sizeof(Element));
    }
  };

  static void stream(const uint8_t* from, uint8_t* to) {
    for (size_t i = 0; i < 64; i += 32) {
      const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), half);
    }
  }
  static Float load(const float* from) { return _mm256_loadu_ps(from); }
  static Float widened(const uint8_t* in) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(in));
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
  }
  static Float sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static Float rest(Float q, Float b, Float a) { return _mm256_fnmadd_ps(q, b, a); }
};

}  // namespace

const ValueKernels kAvx2Values{lines<Values8, Values8::Float32>, lines<Values8, Values8::Bfloat16>,
                               stream<Values8>};

}  // namespace fastload
#endif
