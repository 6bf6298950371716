// AVX-512's vector operations for store_simd.h.
#include "transform/store_kernels.h"

#if defined(__x86_64__)
#include "base/vectors.h"
#include "transform/store_simd.h"

namespace fastload {
namespace {

struct Store16 {
  using Float = __m512;
  static constexpr size_t kLanes = 16;
  static constexpr size_t kPixels = 16;
  static constexpr size_t kBytePixels = 32;
  static constexpr size_t kStreamed = 64;

  struct Float32 {
    using Element = float;
    static void store(Element* to, Float value) { _mm512_storeu_ps(to, value); }
  };
  struct Float16 {
    using Element = uint16_t;
    static void store(Element* to, Float value) {
      constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(value, kNearestEven));
    }
  };
  struct Bfloat16 {
    using Element = uint16_t;
    static void store(Element* to, Float value) {
      const __m512i bits = _mm512_castps_si512(value);
      const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
      const __m512i rounded =
          _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
      const __m512i upper_words =
          _mm512_setr_epi32(0x00030001, 0x00070005, 0x000B0009, 0x000F000D, 0x00130011, 0x00170015,
                            0x001B0019, 0x001F001D, 0, 0, 0, 0, 0, 0, 0, 0);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                          _mm512_castsi512_si256(_mm512_permutexvar_epi16(upper_words, rounded)));
    }
  };

  static Float set(float value) { return _mm512_set1_ps(value); }
  static Float load(const float* from) { return _mm512_loadu_ps(from); }
  static void stream(float* to, Float value) { _mm512_stream_ps(to, value); }
  static Float widened(const uint8_t* in) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
  }
  static Float scaled(Float x, Float a, Float b) { return _mm512_add_ps(_mm512_mul_ps(x, a), b); }

  static __m512i channels(const uint8_t* in) { return _mm512_loadu_si512(in); }
  static Float channel(__m512i pixels, size_t c) {
    const __m512i every_third =
        _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45);
    constexpr __mmask64 kLowBytes = 0x1111111111111111;
    const __m512i index = _mm512_add_epi32(every_third, _mm512_set1_epi32(static_cast<int>(c)));
    return _mm512_cvtepi32_ps(_mm512_maskz_permutexvar_epi8(kLowBytes, index, pixels));
  }

  static void split_bytes(const uint8_t* in, uint8_t* to, size_t plane) {
    const __m512i lane = _mm512_mullo_epi16(
        _mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13,
                         12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
        _mm512_set1_epi16(6));  // 3 * (2 k), the byte of pixel 2 k
    const __m512i every_third =
        _mm512_or_si512(lane, _mm512_slli_epi16(_mm512_add_epi16(lane, _mm512_set1_epi16(3)), 8));
    const __m512i low = _mm512_loadu_si512(in);
    const __m512i high = _mm512_castsi256_si512(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 64)));  // the last of 96 bytes
    for (size_t c = 0; c < 3; ++c) {
      const __m512i index = _mm512_add_epi8(every_third, _mm512_set1_epi8(static_cast<char>(c)));
      const __m512i channel = _mm512_permutex2var_epi8(low, index, high);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + c * plane),
                          _mm512_castsi512_si256(channel));
    }
  }
};

}  // namespace

const StoreKernels kAvx512Store = store_lines<Store16>();

}  // namespace fastload
#endif
