// The weights of one axis, four output pixels at a time, in the same double arithmetic as axis.cpp:
// the operations are the same, so each lane rounds as the scalar code does.
#include "transform/axis_simd.h"

#if defined(__x86_64__)
#include "base/vectors.h"

namespace fastload {
namespace {

__m128i load4(const int32_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
void store4(int32_t* to, __m128i value) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value); }
__m256d widen(__m128i mask) { return _mm256_castsi256_pd(_mm256_cvtepi32_epi64(mask)); }

struct Positions {
  __m256d center;
  __m128i inside;  // all ones where a lane is a pixel of the resized picture
};

Positions positions_of(const AxisSpec& spec, const AxisScale& scale, int j) {
  const __m128i lane = _mm_add_epi32(_mm_set1_epi32(j), _mm_setr_epi32(0, 1, 2, 3));
  const __m128i last = _mm_set1_epi32(spec.count - 1);
  const __m128i used = _mm_min_epi32(lane, last);
  const __m128i offset = spec.mirrored ? _mm_sub_epi32(last, used) : used;
  const __m128i position = _mm_add_epi32(_mm_set1_epi32(spec.first), offset);
  const __m128i end = _mm_set1_epi32(spec.out_size - 1);
  const __m128i clamped = _mm_min_epi32(_mm_max_epi32(position, _mm_setzero_si128()), end);
  const __m128i inside =
      _mm_and_si128(_mm_cmpeq_epi32(position, clamped), _mm_cmpeq_epi32(lane, used));
  const __m256d middle = _mm256_add_pd(_mm256_cvtepi32_pd(clamped), _mm256_set1_pd(0.5));
  return {_mm256_mul_pd(middle, _mm256_set1_pd(scale.scale)), inside};
}

// Source pixels under each output pixel into axis.first and axis.last; returns the largest number.
int fill_spans(const AxisSpec& spec, const AxisScale& scale, Axis& axis) {
  const __m256d support = _mm256_set1_pd(scale.support);
  const __m256d half = _mm256_set1_pd(0.5);
  __m128i most = _mm_set1_epi32(1);
  for (int j = 0; j < axis.stride; j += 4) {
    const __m256d center = positions_of(spec, scale, j).center;
    const __m256d low = _mm256_add_pd(_mm256_sub_pd(center, support), half);
    const __m256d high = _mm256_add_pd(_mm256_add_pd(center, support), half);
    const __m128i begin = _mm_max_epi32(_mm256_cvttpd_epi32(low), _mm_setzero_si128());
    const __m128i end = _mm_min_epi32(_mm256_cvttpd_epi32(high), _mm_set1_epi32(spec.in_size));
    most = _mm_max_epi32(most, _mm_sub_epi32(end, begin));
    store4(axis.first.data() + j, begin);
    store4(axis.last.data() + j, end);
  }
  most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4E));
  return _mm_cvtsi128_si32(_mm_max_epi32(most, _mm_shuffle_epi32(most, 0xB1)));
}

template <bool Cubic>
__m256d filter(__m256d x) {
  const auto k = [](double value) { return _mm256_set1_pd(value); };
  x = _mm256_andnot_pd(k(-0.0), x);
  const __m256d near = _mm256_cmp_pd(x, k(1.0), _CMP_LT_OQ);
  if constexpr (!Cubic) {
    return _mm256_and_pd(near, _mm256_sub_pd(k(1.0), x));
  } else {
    const __m256d slope = _mm256_mul_pd(_mm256_sub_pd(_mm256_mul_pd(k(1.5), x), k(2.5)), x);
    const __m256d inner = _mm256_add_pd(_mm256_mul_pd(slope, x), k(1.0));
    const __m256d cubic = _mm256_add_pd(_mm256_mul_pd(_mm256_sub_pd(x, k(5.0)), x), k(8.0));
    const __m256d outer = _mm256_mul_pd(_mm256_sub_pd(_mm256_mul_pd(cubic, x), k(4.0)), k(-0.5));
    const __m256d far = _mm256_and_pd(_mm256_cmp_pd(x, k(2.0), _CMP_LT_OQ), outer);
    return _mm256_blendv_pd(far, inner, near);
  }
}

__m128i fixed_point(__m256d weight, __m256d sum) {
  const __m256d divide = _mm256_cmp_pd(sum, _mm256_setzero_pd(), _CMP_NEQ_UQ);
  const __m256d w = _mm256_blendv_pd(weight, _mm256_div_pd(weight, sum), divide);
  const __m256d scaled = _mm256_mul_pd(w, _mm256_set1_pd(1 << kPrecisionBits));
  const __m256d negative = _mm256_cmp_pd(w, _mm256_setzero_pd(), _CMP_LT_OQ);
  const __m256d half = _mm256_blendv_pd(_mm256_set1_pd(0.5), _mm256_set1_pd(-0.5), negative);
  return _mm256_cvttpd_epi32(_mm256_add_pd(scaled, half));
}

// Taps > 0: the number of taps, so that the weights stay in registers; 0: axis.taps of them.
template <bool Cubic, int Taps>
void fill_weights(const AxisSpec& spec, const AxisScale& scale, Span source, Axis& axis) {
  const int taps = Taps > 0 ? Taps : axis.taps;
  const int room = source.end - source.begin - taps;
  const __m128i last_first = _mm_set1_epi32(room > 0 ? room : 0);
  const __m128i begin = _mm_set1_epi32(source.begin);
  const __m256d inverse = _mm256_set1_pd(scale.inverse);
  alignas(32) double local[4 * (Taps > 0 ? Taps : 1)];
  double* weights = Taps > 0 ? local : axis.scratch.data();
  for (int j = 0; j < axis.stride; j += 4) {
    const Positions at = positions_of(spec, scale, j);
    const __m128i low = load4(axis.first.data() + j);
    const __m128i high = load4(axis.last.data() + j);
    const __m128i first = _mm_min_epi32(_mm_sub_epi32(low, begin), last_first);
    store4(axis.first.data() + j, first);
    __m128i pixel = _mm_add_epi32(first, begin);
    __m256d sum = _mm256_setzero_pd();
    for (int t = 0; t < taps; ++t) {
      const __m128i before_end = _mm_and_si128(at.inside, _mm_cmpgt_epi32(high, pixel));
      const __m128i under = _mm_andnot_si128(_mm_cmpgt_epi32(low, pixel), before_end);
      const __m256d away =
          _mm256_add_pd(_mm256_sub_pd(_mm256_cvtepi32_pd(pixel), at.center), _mm256_set1_pd(0.5));
      const __m256d w = _mm256_and_pd(widen(under), filter<Cubic>(_mm256_mul_pd(away, inverse)));
      _mm256_store_pd(weights + 4 * t, w);
      sum = _mm256_add_pd(sum, w);
      pixel = _mm_add_epi32(pixel, _mm_set1_epi32(1));
    }
    int32_t* to = axis.weights.data() + j;
    for (int t = 0; t < taps; ++t, to += axis.stride) {
      store4(to, fixed_point(_mm256_load_pd(weights + 4 * t), sum));
    }
  }
}

}  // namespace

void fill_axis_avx2(const AxisSpec& spec, int multiple, Axis& axis) {
  const AxisScale scale = axis_scale(spec);
  const Span source = source_span(spec);
  shape_axis(spec, axis);
  shape_taps(fill_spans(spec, scale, axis), multiple, axis);
  axis.scratch.reserve(4 * static_cast<size_t>(axis.taps));
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
