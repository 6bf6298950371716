// The weights of one axis, several output pixels at a time, in the same double arithmetic as
// axis.cpp: the operations are the same, so each lane rounds as the scalar code does. Pixels are
// whole doubles, too, so that masks are of one kind.
#include <cstddef>
#include <cstdint>

#include "transform/axis.h"
// Behind the others:
#include "base/highway.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

using Doubles = hn::ScalableTag<double>;
using Double = hn::Vec<Doubles>;
constexpr Doubles kDoubles;
using Ints = hn::Rebind<int32_t, Doubles>;
constexpr Ints kInts;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(Doubles()));

Double all(double value) { return hn::Set(kDoubles, value); }

struct Positions {
  Double center;
  hn::Mask<Ints> inside;  // lanes that are pixels of the resized picture
};

Positions positions_of(const AxisSpec& spec, const AxisScale& scale, int j) {
  const auto lane = hn::Add(hn::Set(kInts, j), hn::Iota(kInts, 0));
  const auto last = hn::Set(kInts, spec.count - 1);
  const auto used = hn::Min(lane, last);
  const auto offset = spec.mirrored ? hn::Sub(last, used) : used;
  const auto position = hn::Add(hn::Set(kInts, spec.first), offset);
  const auto clamped =
      hn::Min(hn::Max(position, hn::Zero(kInts)), hn::Set(kInts, spec.out_size - 1));
  const Double middle = hn::Add(hn::PromoteTo(kDoubles, clamped), all(0.5));
  return {hn::Add(all(scale.from), hn::Mul(middle, all(scale.scale))),
          hn::And(hn::Eq(position, clamped), hn::Eq(lane, used))};
}

// Source pixels under each output pixel into axis.first and axis.last, which is 0 for lanes that are
// no pixels; returns the largest number.
int fill_spans(const AxisSpec& spec, const AxisScale& scale, Axis& axis) {
  auto most = hn::Set(kInts, 1);
  for (int j = 0; j < axis.stride; j += kLanes) {
    const Positions at = positions_of(spec, scale, j);
    const Double low = hn::Add(hn::Sub(at.center, all(scale.support)), all(0.5));
    const Double high = hn::Add(hn::Add(at.center, all(scale.support)), all(0.5));
    const auto begin = hn::DemoteTo(kInts, hn::Max(low, all(0)));
    const auto end = hn::DemoteTo(kInts, hn::Min(high, all(spec.in_size)));
    most = hn::Max(most, hn::Sub(end, begin));
    hn::StoreU(begin, kInts, axis.first.data() + j);
    hn::StoreU(hn::IfThenElseZero(at.inside, end), kInts, axis.last.data() + j);
  }
  return hn::GetLane(hn::MaxOfLanes(kInts, most));
}

template <bool Cubic>
Double filter(Double x) {
  x = hn::Abs(x);
  if constexpr (!Cubic) return hn::Max(hn::Sub(all(1), x), all(0));
  const Double slope = hn::Mul(hn::Sub(hn::Mul(all(1.5), x), all(2.5)), x);
  const Double inner = hn::Add(hn::Mul(slope, x), all(1));
  const Double cubic = hn::Add(hn::Mul(hn::Sub(x, all(5)), x), all(8));
  const Double outer = hn::Mul(hn::Sub(hn::Mul(cubic, x), all(4)), all(-0.5));
  return hn::IfThenElse(hn::Lt(x, all(1)), inner, hn::IfThenElseZero(hn::Lt(x, all(2)), outer));
}

// In fixed point.
auto normalized(Double weight, Double sum) {
  const Double w = hn::Div(weight, sum);
  const Double half = hn::CopySignToAbs(all(0.5), w);
  return hn::DemoteTo(kInts, hn::Add(hn::Mul(w, all(1 << kPrecisionBits)), half));
}

// Taps > 0: the number of taps, so that the weights stay in registers; 0: axis.taps of them.
template <bool Cubic, int Taps>
void fill_weights(const AxisSpec& spec, const AxisScale& scale, Span source, Axis& axis) {
  const int taps = Taps > 0 ? Taps : axis.taps;
  const int room = source.end - source.begin - taps;
  const Double last_first = all(source.begin + (room > 0 ? room : 0));
  alignas(64) double local[kLanes * (Taps > 0 ? Taps : 1)];
  double* const weights = Taps > 0 ? local : axis.scratch.data();
  for (int j = 0; j < axis.stride; j += kLanes) {
    const Double center = positions_of(spec, scale, j).center;
    const Double low = hn::PromoteTo(kDoubles, hn::LoadU(kInts, axis.first.data() + j));
    const Double high = hn::PromoteTo(kDoubles, hn::LoadU(kInts, axis.last.data() + j));
    Double pixel = hn::Min(low, last_first);
    const auto first = hn::DemoteTo(kInts, hn::Sub(pixel, all(source.begin)));
    hn::StoreU(first, kInts, axis.first.data() + j);
    Double sum = all(0);
    for (int t = 0; t < taps; ++t) {
      const auto under = hn::And(hn::Lt(pixel, high), hn::Le(low, pixel));
      const Double away = hn::Add(hn::Sub(pixel, center), all(0.5));
      const Double weight = filter<Cubic>(hn::Mul(away, all(scale.inverse)));
      const Double w = hn::IfThenElseZero(under, weight);
      hn::Store(w, kDoubles, weights + kLanes * t);
      sum = hn::Add(sum, w);
      pixel = hn::Add(pixel, all(1));
    }
    sum = hn::IfThenElse(hn::Eq(sum, all(0)), all(1), sum);
    int32_t* to = axis.weights.data() + j;
    for (int t = 0; t < taps; ++t, to += axis.stride) {
      hn::StoreU(normalized(hn::Load(kDoubles, weights + kLanes * t), sum), kInts, to);
    }
  }
}

}  // namespace

void fill_axis(const AxisSpec& spec, int multiple, Axis& axis) {
  // Its sines are the C library's, one at a time.
  if (spec.filter == Filter::kLanczos) return fill_axis_scalar(spec, multiple, axis);
  const AxisScale scale = axis_scale(spec);
  const Span source = source_span(spec);
  shape_axis(spec, axis);
  shape_taps(fill_spans(spec, scale, axis), multiple, axis);
  axis.scratch.reserve(kLanes * static_cast<size_t>(axis.taps));
  if (spec.filter == Filter::kBicubic) {
    fill_weights<true, 0>(spec, scale, source, axis);
  } else if (axis.taps == 4) {
    fill_weights<false, 4>(spec, scale, source, axis);
  } else {
    fill_weights<false, 0>(spec, scale, source, axis);
  }
}

}  // namespace fastload::FASTLOAD_LEVEL
