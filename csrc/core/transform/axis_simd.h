// The weights of one axis, V::kLanes output pixels at a time, in the same double arithmetic as
// axis.cpp: the operations are the same, so each lane rounds as the scalar code does. Included by
// one source file for each instruction set, which names its vector operations in a type V;
// everything here has internal linkage.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transform/axis.h"

namespace fastload {
namespace {

template <class V>
struct Positions {
  typename V::Double center;
  typename V::IntMask inside;  // lanes that are pixels of the resized picture
};

template <class V>
Positions<V> positions_of(const AxisSpec& spec, const AxisScale& scale, int j) {
  using Int = typename V::Int;
  const Int lane = V::lanes_from(j);
  const Int last = V::set(spec.count - 1);
  const Int used = V::min(lane, last);
  const Int offset = spec.mirrored ? V::sub(last, used) : used;
  const Int position = V::add(V::set(spec.first), offset);
  const Int clamped = V::min(V::max(position, V::set(0)), V::set(spec.out_size - 1));
  const auto inside = V::and_at_most(V::equal(position, clamped), lane, last);
  const auto middle = V::add(V::to_double(clamped), V::set(0.5));
  return {V::add(V::set(scale.from), V::mul(middle, V::set(scale.scale))), inside};
}

// Source pixels under each output pixel into axis.first and axis.last; returns the largest number.
template <class V>
int fill_spans(const AxisSpec& spec, const AxisScale& scale, Axis& axis) {
  const auto support = V::set(scale.support);
  const auto half = V::set(0.5);
  typename V::Int most = V::set(1);
  for (int j = 0; j < axis.stride; j += V::kLanes) {
    const auto center = positions_of<V>(spec, scale, j).center;
    const auto low = V::add(V::sub(center, support), half);
    const auto high = V::add(V::add(center, support), half);
    const auto begin = V::max(V::truncate(low), V::set(0));
    const auto end = V::min(V::truncate(high), V::set(spec.in_size));
    most = V::max(most, V::sub(end, begin));
    V::store(axis.first.data() + j, begin);
    V::store(axis.last.data() + j, end);
  }
  return V::largest(most);
}

template <class V, bool Cubic>
typename V::Double filter(typename V::Double x) {
  const auto k = [](double value) { return V::set(value); };
  x = V::abs(x);
  const auto near = V::less(x, k(1.0));
  if constexpr (!Cubic) {
    return V::where(near, V::sub(k(1.0), x));
  } else {
    const auto slope = V::mul(V::sub(V::mul(k(1.5), x), k(2.5)), x);
    const auto inner = V::add(V::mul(slope, x), k(1.0));
    const auto cubic = V::add(V::mul(V::sub(x, k(5.0)), x), k(8.0));
    const auto outer = V::mul(V::sub(V::mul(cubic, x), k(4.0)), k(-0.5));
    return V::select(near, inner, V::where(V::less(x, k(2.0)), outer));
  }
}

template <class V>
typename V::Int fixed_point(typename V::Double weight, typename V::Double sum) {
  const auto w = V::select(V::nonzero(sum), V::div(weight, sum), weight);
  const auto scaled = V::mul(w, V::set(double{1 << kPrecisionBits}));
  const auto half = V::select(V::less(w, V::set(0.0)), V::set(-0.5), V::set(0.5));
  return V::truncate(V::add(scaled, half));
}

// Taps > 0: the number of taps, so that the weights stay in registers; 0: axis.taps of them.
template <class V, bool Cubic, int Taps>
void fill_weights(const AxisSpec& spec, const AxisScale& scale, Span source, Axis& axis) {
  const int taps = Taps > 0 ? Taps : axis.taps;
  const int room = source.end - source.begin - taps;
  const auto last_first = V::set(room > 0 ? room : 0);
  const auto begin = V::set(source.begin);
  const auto inverse = V::set(scale.inverse);
  alignas(64) double local[V::kLanes * (Taps > 0 ? Taps : 1)];
  double* const weights = Taps > 0 ? local : axis.scratch.data();
  for (int j = 0; j < axis.stride; j += V::kLanes) {
    const Positions<V> at = positions_of<V>(spec, scale, j);
    const auto low = V::load(axis.first.data() + j);
    const auto high = V::load(axis.last.data() + j);
    const auto first = V::min(V::sub(low, begin), last_first);
    V::store(axis.first.data() + j, first);
    auto pixel = V::add(first, begin);
    auto sum = V::set(0.0);
    for (int t = 0; t < taps; ++t) {
      const auto under = V::and_at_most(V::and_less(at.inside, pixel, high), low, pixel);
      const auto away = V::add(V::sub(V::to_double(pixel), at.center), V::set(0.5));
      const auto w = V::where(V::to_double_mask(under), filter<V, Cubic>(V::mul(away, inverse)));
      V::store_aligned(weights + V::kLanes * t, w);
      sum = V::add(sum, w);
      pixel = V::add(pixel, V::set(1));
    }
    int32_t* to = axis.weights.data() + j;
    for (int t = 0; t < taps; ++t, to += axis.stride) {
      V::store(to, fixed_point<V>(V::load_aligned(weights + V::kLanes * t), sum));
    }
  }
}

template <class V>
void fill_axis(const AxisSpec& spec, int multiple, Axis& axis) {
  // Its sines are the C library's, one at a time.
  if (spec.filter == Filter::kLanczos) return fill_axis_scalar(spec, multiple, axis);
  const AxisScale scale = axis_scale(spec);
  const Span source = source_span(spec);
  shape_axis(spec, axis);
  shape_taps(fill_spans<V>(spec, scale, axis), multiple, axis);
  axis.scratch.reserve(V::kLanes * static_cast<size_t>(axis.taps));
  if (spec.filter == Filter::kBicubic) {
    fill_weights<V, true, 0>(spec, scale, source, axis);
  } else if (axis.taps == 4) {
    fill_weights<V, false, 4>(spec, scale, source, axis);
  } else {
    fill_weights<V, false, 0>(spec, scale, source, axis);
  }
}

}  // namespace
}  // namespace fastload
