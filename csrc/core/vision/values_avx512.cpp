// AVX-512's vector operations for values_simd.h.
#include "vision/values.h"

#if defined(__x86_64__)
#include "base/vectors.h"
#include "vision/values_simd.h"

namespace fastload {
namespace {

struct Values16 {
  using Float = __m512;
  static constexpr size_t kLanes = 16;

  static __mmask16 first(size_t count) { return static_cast<__mmask16>((1U << count) - 1); }

  struct Float32 {
    using Element = float;
    static void store(Element* to, Float value) { _mm512_storeu_ps(to, value); }
    static void store_some(Element* to, Float value, size_t count) {
      _mm512_mask_storeu_ps(to, first(count), value);
    }
  };
  struct Bfloat16 {
    using Element = uint16_t;
    static __m256i rounded(Float value) {
      const __m512i bits = _mm512_castps_si512(value);
      const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
      const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
      return _mm512_cvtepi32_epi16(_mm512_srli_epi32(sum, 16));
    }
    static void store(Element* to, Float value) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded(value));
    }
    static void store_some(Element* to, Float value, size_t count) {
      _mm256_mask_storeu_epi16(to, first(count), rounded(value));
    }
  };

  static void stream(const uint8_t* from, uint8_t* to) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
  }
  static Float load(const float* from) { return _mm512_loadu_ps(from); }
  static Float widened(const uint8_t* in) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
  }
  static Float sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static Float rest(Float q, Float b, Float a) { return _mm512_fnmadd_ps(q, b, a); }
};

}  // namespace

const ValueKernels kAvx512Values{lines<Values16, Values16::Float32>,
                                 lines<Values16, Values16::Bfloat16>, stream<Values16>};

}  // namespace fastload
#endif
