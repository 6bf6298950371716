// The weights of one axis, eight output pixels at a time, in the same double arithmetic as
// axis.cpp: the operations are the same, so each lane rounds as the scalar code does.
#include "transform/axis_simd.h"

#if defined(__x86_64__)
#include "base/vectors.h"

namespace fastload {
namespace {

struct Positions {
  __m512d center;
  __mmask8 inside;  // lanes that are pixels of the resized picture
};

Positions positions_of(const AxisSpec& spec, const AxisScale& scale, int j) {
  const __m256i lane =
      _mm256_add_epi32(_mm256_set1_epi32(j), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  const __m256i last = _mm256_set1_epi32(spec.count - 1);
  const __m256i used = _mm256_min_epi32(lane, last);
  const __m256i offset = spec.mirrored ? _mm256_sub_epi32(last, used) : used;
  const __m256i position = _mm256_add_epi32(_mm256_set1_epi32(spec.first), offset);
  const __m256i zero = _mm256_setzero_si256();
  const __m256i end = _mm256_set1_epi32(spec.out_size - 1);
  const __m256i clamped = _mm256_min_epi32(_mm256_max_epi32(position, zero), end);
  const __mmask8 inside =
      _mm256_cmpeq_epi32_mask(position, clamped) & _mm256_cmple_epi32_mask(lane, last);
  const __m512d middle = _mm512_add_pd(_mm512_cvtepi32_pd(clamped), _mm512_set1_pd(0.5));
  return {_mm512_mul_pd(middle, _mm512_set1_pd(scale.scale)), inside};
}

// Source pixels under each output pixel into axis.first and axis.last; returns the largest number.
int fill_spans(const AxisSpec& spec, const AxisScale& scale, Axis& axis) {
  const __m512d support = _mm512_set1_pd(scale.support);
  const __m512d half = _mm512_set1_pd(0.5);
  __m256i most = _mm256_set1_epi32(1);
  for (int j = 0; j < axis.stride; j += 8) {
    const __m512d center = positions_of(spec, scale, j).center;
    const __m512d low = _mm512_add_pd(_mm512_sub_pd(center, support), half);
    const __m512d high = _mm512_add_pd(_mm512_add_pd(center, support), half);
    const __m256i begin = _mm256_max_epi32(_mm512_cvttpd_epi32(low), _mm256_setzero_si256());
    const __m256i end =
        _mm256_min_epi32(_mm512_cvttpd_epi32(high), _mm256_set1_epi32(spec.in_size));
    most = _mm256_max_epi32(most, _mm256_sub_epi32(end, begin));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(axis.first.data() + j), begin);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(axis.last.data() + j), end);
  }
  return _mm512_reduce_max_epi32(_mm512_inserti64x4(_mm512_castsi256_si512(most), most, 1));
}

template <bool Cubic>
__m512d filter(__m512d x) {
  const __m512d one = _mm512_set1_pd(1.0);
  x = _mm512_abs_pd(x);
  if constexpr (!Cubic) {
    return _mm512_maskz_sub_pd(_mm512_cmp_pd_mask(x, one, _CMP_LT_OQ), one, x);
  } else {
    const auto k = [](double value) { return _mm512_set1_pd(value); };
    const __m512d inner = _mm512_add_pd(
        _mm512_mul_pd(_mm512_mul_pd(_mm512_sub_pd(_mm512_mul_pd(k(1.5), x), k(2.5)), x), x), one);
    const __m512d cubic = _mm512_add_pd(_mm512_mul_pd(_mm512_sub_pd(x, k(5.0)), x), k(8.0));
    const __m512d outer = _mm512_mul_pd(_mm512_sub_pd(_mm512_mul_pd(cubic, x), k(4.0)), k(-0.5));
    const __m512d far = _mm512_maskz_mov_pd(_mm512_cmp_pd_mask(x, k(2.0), _CMP_LT_OQ), outer);
    return _mm512_mask_mov_pd(far, _mm512_cmp_pd_mask(x, one, _CMP_LT_OQ), inner);
  }
}

__m256i fixed_point(__m512d weight, __m512d sum) {
  const __mmask8 divide = _mm512_cmp_pd_mask(sum, _mm512_setzero_pd(), _CMP_NEQ_UQ);
  const __m512d w = _mm512_mask_div_pd(weight, divide, weight, sum);
  const __m512d scaled = _mm512_mul_pd(w, _mm512_set1_pd(1 << kPrecisionBits));
  const __mmask8 negative = _mm512_cmp_pd_mask(w, _mm512_setzero_pd(), _CMP_LT_OQ);
  const __m512d half = _mm512_mask_mov_pd(_mm512_set1_pd(0.5), negative, _mm512_set1_pd(-0.5));
  return _mm512_cvttpd_epi32(_mm512_add_pd(scaled, half));
}

// Taps > 0: the number of taps, so that the weights stay in registers; 0: axis.taps of them.
template <bool Cubic, int Taps>
void fill_weights(const AxisSpec& spec, const AxisScale& scale, Span source, Axis& axis) {
  const int taps = Taps > 0 ? Taps : axis.taps;
  const int room = source.end - source.begin - taps;
  const __m256i last_first = _mm256_set1_epi32(room > 0 ? room : 0);
  const __m256i begin = _mm256_set1_epi32(source.begin);
  const __m512d inverse = _mm512_set1_pd(scale.inverse);
  alignas(64) double local[8 * (Taps > 0 ? Taps : 1)];
  double* weights = Taps > 0 ? local : axis.scratch.data();
  for (int j = 0; j < axis.stride; j += 8) {
    const Positions at = positions_of(spec, scale, j);
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(axis.first.data() + j));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(axis.last.data() + j));
    const __m256i first = _mm256_min_epi32(_mm256_sub_epi32(low, begin), last_first);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(axis.first.data() + j), first);
    __m256i pixel = _mm256_add_epi32(first, begin);
    __m512d sum = _mm512_setzero_pd();
    for (int t = 0; t < taps; ++t) {
      const __mmask8 under =
          at.inside & _mm256_cmpge_epi32_mask(pixel, low) & _mm256_cmplt_epi32_mask(pixel, high);
      const __m512d away =
          _mm512_add_pd(_mm512_sub_pd(_mm512_cvtepi32_pd(pixel), at.center), _mm512_set1_pd(0.5));
      const __m512d w = _mm512_maskz_mov_pd(under, filter<Cubic>(_mm512_mul_pd(away, inverse)));
      _mm512_store_pd(weights + 8 * t, w);
      sum = _mm512_add_pd(sum, w);
      pixel = _mm256_add_epi32(pixel, _mm256_set1_epi32(1));
    }
    int32_t* to = axis.weights.data() + j;
    for (int t = 0; t < taps; ++t, to += axis.stride) {
      const __m256i fixed = fixed_point(_mm512_load_pd(weights + 8 * t), sum);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), fixed);
    }
  }
}

}  // namespace

void fill_axis_avx512(const AxisSpec& spec, int multiple, Axis& axis) {
  const AxisScale scale = axis_scale(spec);
  const Span source = source_span(spec);
  shape_axis(spec, axis);
  shape_taps(fill_spans(spec, scale, axis), multiple, axis);
  axis.scratch.reserve(8 * static_cast<size_t>(axis.taps));
  if (spec.filter == Filter::kBicubic) {
    fill_weights<true, 0>(spec, scale, source, axis);
  } else if (axis.taps == 4) {
    fill_weights<false, 4>(spec, scale, source, axis);
  } else {
    fill_weights<false, 0>(spec, scale, source, axis);
  }
}

}  // namespace fastload
#endif
