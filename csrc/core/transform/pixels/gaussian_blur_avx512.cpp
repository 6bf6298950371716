// AVX-512's vector operations for gaussian_blur_simd.h.
#include "transform/pixels/gaussian_blur_kernels.h"

#if defined(__x86_64__)
#include "base/vectors.h"
#include "transform/pixels/gaussian_blur_simd.h"

namespace fastload {
namespace {

struct Gaussian16 {
  using Float = __m512;
  static constexpr int kLanes = 16;

  static Float zero() { return _mm512_setzero_ps(); }
  static Float set(float value) { return _mm512_set1_ps(value); }
  static Float load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Float value) { _mm512_storeu_ps(to, value); }
  static Float widened(const uint8_t* in) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
  }
  static Float added(Float x, Float tap, Float sum) { return _mm512_fmadd_ps(x, tap, sum); }
  // Sixteen bytes, and which of them are in doubt.
  static uint32_t round(Float value, uint8_t* to) {
    const __m512i whole = _mm512_cvtps_epi32(value);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtusepi32_epi8(whole));
    const Float part = _mm512_sub_ps(value, _mm512_cvtepi32_ps(whole));
    const Float limit = _mm512_set1_ps(0.5F - kGaussianDoubt);
    return _mm512_cmp_ps_mask(_mm512_abs_ps(part), limit, _CMP_GT_OQ);
  }
};

}  // namespace

void gaussian_blur_avx512(const GaussianJob& job) { GaussianBlur<Gaussian16>(job).run(); }

}  // namespace fastload
#endif
