// AVX-512's vector operations for box_blur_simd.h.
#include "transform/pixels/box_blur_kernels.h"

#if defined(__x86_64__)
#include "base/vectors.h"
#include "transform/pixels/box_blur_simd.h"

namespace fastload {
namespace {

struct Box16 {
  using Int = __m512i;
  static constexpr int kLanes = 16;

  static Int set(uint32_t value) { return _mm512_set1_epi32(static_cast<int>(value)); }
  static Int load(const uint8_t* from) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static Int add(Int a, Int b) { return _mm512_add_epi32(a, b); }
  static Int sub(Int a, Int b) { return _mm512_sub_epi32(a, b); }
  static Int mul(Int a, Int b) { return _mm512_mullo_epi32(a, b); }
  static void store_top(uint8_t* to, Int value) {
    const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_srli_epi32(value, 24));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
  }
};

}  // namespace

void box_blur_avx512(const Box& box, const Picture& picture, uint8_t* scratch) {
  box_blur<Box16>(box, picture, scratch);
}

}  // namespace fastload
#endif
