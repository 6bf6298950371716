// AVX-512's vector operations for axis_simd.h.
#include "transform/axis.h"

#if defined(__x86_64__)
#include "base/vectors.h"
#include "transform/axis_simd.h"

namespace fastload {
namespace {

struct Axis8 {
  using Int = __m256i;
  using Double = __m512d;
  using IntMask = __mmask8;
  using DoubleMask = __mmask8;
  static constexpr int kLanes = 8;

  static Int set(int value) { return _mm256_set1_epi32(value); }
  static Int lanes_from(int j) {
    return _mm256_add_epi32(set(j), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Int load(const int32_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static void store(int32_t* to, Int v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v); }
  static Int add(Int a, Int b) { return _mm256_add_epi32(a, b); }
  static Int sub(Int a, Int b) { return _mm256_sub_epi32(a, b); }
  static Int min(Int a, Int b) { return _mm256_min_epi32(a, b); }
  static Int max(Int a, Int b) { return _mm256_max_epi32(a, b); }
  static int largest(Int v) {
    return _mm512_reduce_max_epi32(_mm512_inserti64x4(_mm512_castsi256_si512(v), v, 1));
  }

  static IntMask equal(Int a, Int b) { return _mm256_cmpeq_epi32_mask(a, b); }
  static IntMask and_less(IntMask m, Int a, Int b) { return _mm256_mask_cmplt_epi32_mask(m, a, b); }
  static IntMask and_at_most(IntMask m, Int a, Int b) {
    return _mm256_mask_cmple_epi32_mask(m, a, b);
  }
  static DoubleMask to_double_mask(IntMask m) { return m; }

  static Double set(double value) { return _mm512_set1_pd(value); }
  static Double to_double(Int v) { return _mm512_cvtepi32_pd(v); }
  static Int truncate(Double v) { return _mm512_cvttpd_epi32(v); }
  static Double load_aligned(const double* from) { return _mm512_load_pd(from); }
  static void store_aligned(double* to, Double v) { _mm512_store_pd(to, v); }
  static Double add(Double a, Double b) { return _mm512_add_pd(a, b); }
  static Double sub(Double a, Double b) { return _mm512_sub_pd(a, b); }
  static Double mul(Double a, Double b) { return _mm512_mul_pd(a, b); }
  static Double div(Double a, Double b) { return _mm512_div_pd(a, b); }
  static Double abs(Double v) { return _mm512_abs_pd(v); }
  static DoubleMask less(Double a, Double b) { return _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ); }
  static DoubleMask nonzero(Double v) {
    return _mm512_cmp_pd_mask(v, _mm512_setzero_pd(), _CMP_NEQ_UQ);
  }
  static Double where(DoubleMask m, Double v) { return _mm512_maskz_mov_pd(m, v); }
  static Double select(DoubleMask m, Double chosen, Double otherwise) {
    return _mm512_mask_mov_pd(otherwise, m, chosen);
  }
};

}  // namespace

void fill_axis_avx512(const AxisSpec& spec, int multiple, Axis& axis) {
  fill_axis<Axis8>(spec, multiple, axis);
}

}  // namespace fastload
#endif
