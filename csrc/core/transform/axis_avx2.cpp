// AVX2's vector operations for axis_simd.h.
#include "transform/axis.h"

#if defined(__x86_64__)
#include "base/vectors.h"
#include "transform/axis_simd.h"

namespace fastload {
namespace {

struct Axis4 {
  using Int = __m128i;
  using Double = __m256d;
  using IntMask = __m128i;  // all ones in a chosen lane
  using DoubleMask = __m256d;
  static constexpr int kLanes = 4;

  static Int set(int value) { return _mm_set1_epi32(value); }
  static Int lanes_from(int j) { return _mm_add_epi32(set(j), _mm_setr_epi32(0, 1, 2, 3)); }
  static Int load(const int32_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  static void store(int32_t* to, Int v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), v); }
  static Int add(Int a, Int b) { return _mm_add_epi32(a, b); }
  static Int sub(Int a, Int b) { return _mm_sub_epi32(a, b); }
  static Int min(Int a, Int b) { return _mm_min_epi32(a, b); }
  static Int max(Int a, Int b) { return _mm_max_epi32(a, b); }
  static int largest(Int v) {
    v = _mm_max_epi32(v, _mm_shuffle_epi32(v, 0x4E));
    return _mm_cvtsi128_si32(_mm_max_epi32(v, _mm_shuffle_epi32(v, 0xB1)));
  }

  static IntMask equal(Int a, Int b) { return _mm_cmpeq_epi32(a, b); }
  static IntMask and_less(IntMask m, Int a, Int b) {
    return _mm_and_si128(m, _mm_cmpgt_epi32(b, a));
  }
  static IntMask and_at_most(IntMask m, Int a, Int b) {
    return _mm_andnot_si128(_mm_cmpgt_epi32(a, b), m);
  }
  static DoubleMask to_double_mask(IntMask m) {
    return _mm256_castsi256_pd(_mm256_cvtepi32_epi64(m));
  }

  static Double set(double value) { return _mm256_set1_pd(value); }
  static Double to_double(Int v) { return _mm256_cvtepi32_pd(v); }
  static Int truncate(Double v) { return _mm256_cvttpd_epi32(v); }
  static Double load_aligned(const double* from) { return _mm256_load_pd(from); }
  static void store_aligned(double* to, Double v) { _mm256_store_pd(to, v); }
  static Double add(Double a, Double b) { return _mm256_add_pd(a, b); }
  static Double sub(Double a, Double b) { return _mm256_sub_pd(a, b); }
  static Double mul(Double a, Double b) { return _mm256_mul_pd(a, b); }
  static Double div(Double a, Double b) { return _mm256_div_pd(a, b); }
  static Double abs(Double v) { return _mm256_andnot_pd(set(-0.0), v); }
  static DoubleMask less(Double a, Double b) { return _mm256_cmp_pd(a, b, _CMP_LT_OQ); }
  static DoubleMask nonzero(Double v) { return _mm256_cmp_pd(v, _mm256_setzero_pd(), _CMP_NEQ_UQ); }
  static Double where(DoubleMask m, Double v) { return _mm256_and_pd(m, v); }
  static Double select(DoubleMask m, Double chosen, Double otherwise) {
    return _mm256_blendv_pd(otherwise, chosen, m);
  }
};

}  // namespace

void fill_axis_avx2(const AxisSpec& spec, int multiple, Axis& axis) {
  fill_axis<Axis4>(spec, multiple, axis);
}

}  // namespace fastload
#endif
