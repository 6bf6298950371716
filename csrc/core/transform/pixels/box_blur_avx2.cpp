// AVX2's vector operations for box_blur_simd.h.
#include "transform/pixels/box_blur_kernels.h"

#if defined(__x86_64__)
#include "base/vectors.h"
#include "transform/pixels/box_blur_simd.h"

namespace fastload {
namespace {

struct Box8 {
  using Int = __m256i;
  static constexpr int kLanes = 8;

  static Int set(uint32_t value) { return _mm256_set1_epi32(static_cast<int>(value)); }
  static Int load(const uint8_t* from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }
  static Int add(Int a, Int b) { return _mm256_add_epi32(a, b); }
  static Int sub(Int a, Int b) { return _mm256_sub_epi32(a, b); }
  static Int mul(Int a, Int b) { return _mm256_mullo_epi32(a, b); }
  static void store_top(uint8_t* to, Int value) {
    const Int top = _mm256_srli_epi32(value, 24);
    const __m128i words =
        _mm_packus_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(words, words));
  }
};

}  // namespace

void box_blur_avx2(const Box& box, const Picture& picture, uint8_t* scratch) {
  box_blur<Box8>(box, picture, scratch);
}

}  // namespace fastload
#endif
