// AVX2's vector operations for gaussian_blur_simd.h.
#include "transform/pixels/gaussian_blur_kernels.h"

#if defined(__x86_64__)
#include "base/vectors.h"
#include "transform/pixels/gaussian_blur_simd.h"

namespace fastload {
namespace {

struct Gaussian8 {
  using Float = __m256;
  static constexpr int kLanes = 8;

  static Float zero() { return _mm256_setzero_ps(); }
  static Float set(float value) { return _mm256_set1_ps(value); }
  static Float load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, Float value) { _mm256_storeu_ps(to, value); }
  static Float widened(const uint8_t* in) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(in));
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
  }
  static Float added(Float x, Float tap, Float sum) { return _mm256_fmadd_ps(x, tap, sum); }
  // Eight bytes, and which of them are in doubt.
  static uint32_t round(Float value, uint8_t* to) {
    const __m256i whole = _mm256_cvtps_epi32(value);
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(words, words));
    const Float part = _mm256_sub_ps(value, _mm256_cvtepi32_ps(whole));
    const Float size = _mm256_andnot_ps(_mm256_set1_ps(-0.0F), part);
    const Float limit = _mm256_set1_ps(0.5F - kGaussianDoubt);
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(size, limit, _CMP_GT_OQ)));
  }
};

}  // namespace

void gaussian_blur_avx2(const GaussianJob& job) { GaussianBlur<Gaussian8>(job).run(); }

}  // namespace fastload
#endif
