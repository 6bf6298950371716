#include "transform/axis.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string>

#include "base/error.h"

namespace fastload {
namespace {

double bilinear(double x) {
  x = std::abs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

// Keys' cubic convolution with a = -0.5, in Pillow's order of operations.
double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x = x * std::numbers::pi;
  return std::sin(x) / x;
}

// Three lobes of a sinc under the first of a wider one.
double lanczos(double x) { return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

double weight_of(Filter filter, double x) {
  switch (filter) {
    case Filter::kBilinear:
      return bilinear(x);
    case Filter::kBicubic:
      return bicubic(x);
    case Filter::kLanczos:
      return lanczos(x);
  }
  return 0.0;
}

// Half the filter's width, in pixels of the smaller grid.
double support_of(Filter filter) {
  return filter == Filter::kLanczos ? 3.0 : filter == Filter::kBicubic ? 2.0 : 1.0;
}

int32_t fixed_point(double weight) {
  const double scaled = weight * (1 << kPrecisionBits);
  return static_cast<int32_t>(weight < 0 ? scaled - 0.5 : scaled + 0.5);
}

double center_of(const AxisScale& scale, int position) {
  return scale.from + (position + 0.5) * scale.scale;
}

// The source pixels under the filter at an output position.
Span span_at(const AxisSpec& spec, const AxisScale& scale, int position) {
  const double center = center_of(scale, position);
  return {std::max(static_cast<int>(center - scale.support + 0.5), 0),
          std::min(static_cast<int>(center + scale.support + 0.5), spec.in_size)};
}

// put(source, weight) for the source pixels [span.begin, span.end) of output pixel j. `kept` has
// room for their weights: a sine is not worth taking twice.
template <class Put>
void each_weight(const AxisSpec& spec, const AxisScale& scale, int j, Span span, double* kept,
                 Put put) {
  const double center = center_of(scale, spec.position(j));
  const int count = span.end - span.begin;
  double sum = 0.0;
  for (int t = 0; t < count; ++t) {
    kept[t] = weight_of(spec.filter, (span.begin + t - center + 0.5) * scale.inverse);
    sum += kept[t];
  }
  for (int t = 0; t < count; ++t) put(span.begin + t, sum != 0.0 ? kept[t] / sum : kept[t]);
}

bool is_inside(const AxisSpec& spec, int j) {
  const int position = spec.position(j);
  return j < spec.count && position >= 0 && position < spec.out_size;
}

}  // namespace

Span source_span(const AxisSpec& spec) {
  const int low = std::max(spec.first, 0);
  const int high = std::min(spec.first + spec.count, spec.out_size) - 1;
  if (low > high) {
    throw Error(ErrorKind::kValue, "The window must overlap the resized picture, [0, " +
                                       std::to_string(spec.out_size) + "). Found: [" +
                                       std::to_string(spec.first) + ", " +
                                       std::to_string(spec.first + spec.count) + ").");
  }
  if (spec.identity()) return {low, high + 1};
  const AxisScale scale = axis_scale(spec);
  return {span_at(spec, scale, low).begin, span_at(spec, scale, high).end};
}

AxisScale axis_scale(const AxisSpec& spec) {
  const bool stepped = spec.step != 0;
  const double scale = stepped ? spec.step : static_cast<double>(spec.in_size) / spec.out_size;
  const double filter_scale = std::max(scale, 1.0);
  return {scale, support_of(spec.filter) * filter_scale, 1.0 / filter_scale,
          stepped ? spec.from : 0.0};
}

void shape_axis(const AxisSpec& spec, Axis& axis) {
  axis.count = spec.count;
  axis.stride = (spec.count + Axis::kLanes - 1) / Axis::kLanes * Axis::kLanes;
  axis.first.reserve(static_cast<size_t>(axis.stride));
  axis.last.reserve(static_cast<size_t>(axis.stride));
}

void shape_taps(int most, int multiple, Axis& axis) {
  axis.taps = (most + multiple - 1) / multiple * multiple;
  axis.weights.reserve(static_cast<size_t>(axis.taps) * axis.stride);
}

void fill_identity(const AxisSpec& spec, int multiple, Axis& axis) {
  shape_axis(spec, axis);
  shape_taps(1, multiple, axis);
  std::memset(axis.weights.data(), 0, sizeof(int32_t) * axis.taps * axis.stride);
  const Span source = source_span(spec);
  const int last_first = std::max(source.end - source.begin - axis.taps, 0);
  for (int j = 0; j < axis.stride; ++j) {
    const int position = spec.position(std::min(j, axis.count - 1));
    const int clamped = std::clamp(position, source.begin, source.end - 1) - source.begin;
    axis.first[j] = std::min(clamped, last_first);
    if (j < axis.count && position >= 0 && position < spec.out_size) {
      axis.weights[static_cast<size_t>(clamped - axis.first[j]) * axis.stride + j] =
          1 << kPrecisionBits;
    }
  }
}

void fill_axis_scalar(const AxisSpec& spec, int multiple, Axis& axis) {
  const AxisScale scale = axis_scale(spec);
  const Span source = source_span(spec);
  const auto span_of = [&](int j) {
    return span_at(spec, scale, std::clamp(spec.position(j), 0, spec.out_size - 1));
  };
  int most = 1;
  for (int j = 0; j < spec.count; ++j) {
    const Span span = span_of(j);
    most = std::max(most, span.end - span.begin);
  }
  shape_axis(spec, axis);
  shape_taps(most, multiple, axis);
  axis.scratch.reserve(static_cast<size_t>(axis.taps));
  std::memset(axis.weights.data(), 0, sizeof(int32_t) * axis.taps * axis.stride);
  const int last_first = std::max(source.end - source.begin - axis.taps, 0);
  for (int j = 0; j < axis.stride; ++j) {
    const Span span = span_of(std::min(j, axis.count - 1));
    axis.first[j] = std::min(span.begin - source.begin, last_first);
    if (!is_inside(spec, j)) continue;
    const int skipped = source.begin + axis.first[j];
    each_weight(spec, scale, j, span, axis.scratch.data(), [&](int from, double weight) {
      axis.weights[static_cast<size_t>(from - skipped) * axis.stride + j] = fixed_point(weight);
    });
  }
}

void fill_exact(const AxisSpec& spec, Axis& axis) {
  const size_t taps = static_cast<size_t>(axis.taps);
  axis.exact.reserve(taps * axis.count);
  axis.scratch.reserve(taps);
  std::fill_n(axis.exact.data(), taps * axis.count, 0.0);
  const AxisScale scale = axis_scale(spec);
  const int begin = source_span(spec).begin;
  for (int j = 0; j < axis.count; ++j) {
    if (!is_inside(spec, j)) continue;
    double* const weights = axis.exact.data() + taps * j - begin - axis.first[j];
    const int position = spec.position(j);
    if (spec.identity()) {
      weights[position] = 1.0;
    } else {
      each_weight(spec, scale, j, span_at(spec, scale, position), axis.scratch.data(),
                  [&](int from, double weight) { weights[from] = weight; });
    }
  }
}

}  // namespace fastload
