// AVX2's vector operations for store_simd.h.
#include "transform/store_kernels.h"

#if defined(__x86_64__)
#include "base/vectors.h"
#include "transform/store_simd.h"

namespace fastload {
namespace {

struct Store8 {
  using Float = __m256;
  static constexpr size_t kLanes = 8;
  static constexpr size_t kPixels = 8;       // of a step of numbers
  static constexpr size_t kBytePixels = 16;  // of a step of split_bytes()
  static constexpr size_t kStreamed = 32;    // bytes to which stream()'s address is aligned

  struct Float32 {
    using Element = float;
    static void store(Element* to, Float value) { _mm256_storeu_ps(to, value); }
  };
  struct Float16 {
    using Element = uint16_t;
    static void store(Element* to, Float value) {
      constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(value, kNearestEven));
    }
  };
  struct Bfloat16 {
    using Element = uint16_t;
    static void store(Element* to, Float value) {
      const __m256i bits = _mm256_castps_si256(value);
      const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
      const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
      const __m256i upper = _mm256_srli_epi32(sum, 16);
      const __m128i words =
          _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), words);
    }
  };

  static Float set(float value) { return _mm256_set1_ps(value); }
  static Float load(const float* from) { return _mm256_loadu_ps(from); }
  static void stream(float* to, Float value) { _mm256_stream_ps(to, value); }
  static Float widened(const uint8_t* in) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(in));
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
  }
  static Float scaled(Float x, Float a, Float b) { return _mm256_add_ps(_mm256_mul_ps(x, a), b); }

  // Eight RGB pixels, four in each half.
  static __m256i channels(const uint8_t* in) {
    const auto* from = reinterpret_cast<const __m128i*>(in);
    const auto* next = reinterpret_cast<const __m128i*>(in + 12);
    return _mm256_loadu2_m128i(next, from);
  }
  static Float channel(__m256i pixels, size_t c) {
    const __m256i every_third = _mm256_setr_epi32(0, 3, 6, 9, 0, 3, 6, 9);
    const __m256i index = _mm256_add_epi32(every_third, _mm256_set1_epi32(static_cast<int>(c)));
    const __m256i bytes =
        _mm256_and_si256(_mm256_shuffle_epi8(pixels, index), _mm256_set1_epi32(0xFF));
    return _mm256_cvtepi32_ps(bytes);
  }

  static void split_bytes(const uint8_t* in, uint8_t* to, size_t plane) {
    const __m128i split = _mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, -1, -1, -1, -1);
    const auto four = [&](size_t k) {  // RRRR GGGG BBBB of pixels k ..
      return _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 3 * k)), split);
    };
    const __m128i p0 = four(0);
    const __m128i p1 = four(4);
    const __m128i p2 = four(8);
    const __m128i p3 = four(12);
    const __m128i rg01 = _mm_unpacklo_epi32(p0, p1);
    const __m128i rg23 = _mm_unpacklo_epi32(p2, p3);
    const __m128i b = _mm_unpacklo_epi64(_mm_unpackhi_epi32(p0, p1), _mm_unpackhi_epi32(p2, p3));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_unpacklo_epi64(rg01, rg23));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + plane), _mm_unpackhi_epi64(rg01, rg23));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * plane), b);
  }
};

}  // namespace

const StoreKernels kAvx2Store = store_lines<Store8>();

}  // namespace fastload
#endif
