// One axis of a separable resize: which source pixels make an output pixel, and with which weights.
// The arithmetic is Pillow's precompute_coeffs and normalize_coeffs_8bpc (libImaging/Resample.c),
// double by double, so that the weights are Pillow's to the last bit.
#pragma once

#include <cstdint>

#include "base/kernels.h"
#include "transform/buffer.h"
#include "transform/view.h"

namespace fastload {

constexpr int kPrecisionBits = 22;  // fixed-point weights: 1.0 is 2^22
constexpr int32_t kRounding = 1 << (kPrecisionBits - 1);

// `count` output pixels from `first` on (pixels outside [0, out_size) are zero), made of in_size
// source pixels. `mirrored`: in the order first + count - 1 down to first. With a `step`, output
// pixel p is made of what lies around `from` + (p + 0.5) * step: as Pillow's resize() of a box
// does, but in double, and the middles alone must be inside.
struct AxisSpec {
  int in_size = 0;
  int out_size = 0;
  Filter filter = Filter::kBilinear;
  int first = 0;
  int count = 0;
  bool mirrored = false;
  double from = 0;  // source pixels; with a step
  double step = 0;  // source pixels per output pixel; 0: in_size / out_size
  [[nodiscard]] int position(int j) const { return first + (mirrored ? count - 1 - j : j); }
  [[nodiscard]] bool identity() const { return in_size == out_size && step == 0; }
  bool operator==(const AxisSpec&) const = default;
};

// Source pixels [begin, end).
struct Span {
  int begin = 0;
  int end = 0;
};

// Pillow's constants for one axis.
struct AxisScale {
  double scale;    // source pixels per output pixel
  double support;  // half the filter's width, in source pixels
  double inverse;  // 1 / max(scale, 1)
  double from;     // where the first output pixel begins, in source pixels
};

AxisScale axis_scale(const AxisSpec& spec);

// The source pixels that the window's pixels are made of. Throws Error(kValue) if there are none.
Span source_span(const AxisSpec& spec);

// Output pixel j is the sum of source pixels first[j] + t (counted from source_span().begin) times
// weights[t * stride + j], t < taps. `packed` is the same in a kernel's own layout.
struct Axis {
  int count = 0;
  int stride = 0;  // count rounded up to kLanes; the pixels behind count have weights of 0
  int taps = 0;
  int way = 0;  // a kernel's choice between ways to load pixels
  Buffer<int32_t> first;
  Buffer<int32_t> last;  // scratch: one past the last source pixel, from the picture's begin
  Buffer<int32_t> weights;
  Buffer<int32_t> packed;
  Buffer<double> exact;  // weights before they are rounded, output pixel after output pixel
  Buffer<double> scratch;
  static constexpr int kLanes = 16;
};

// Fills everything but `packed`. `taps` is the largest number of source pixels of any output pixel,
// rounded up to `multiple`; first[j] + taps stays inside the span where the span is wide enough.
// Where it is not, first[j] is 0.
void fill_axis_scalar(const AxisSpec& spec, int multiple, Axis& axis);
FASTLOAD_KERNEL(void fill_axis(const AxisSpec& spec, int multiple, Axis& axis));

// Fills `exact` of an axis that was filled for the same spec: exact[j * taps + t].
void fill_exact(const AxisSpec& spec, Axis& axis);

// What the variants of fill_axis share: memory for `count` pixels, then for `most` taps.
void shape_axis(const AxisSpec& spec, Axis& axis);
void shape_taps(int most, int multiple, Axis& axis);

// Weights of 1: every output pixel is one source pixel (equal sizes), or zero outside.
void fill_identity(const AxisSpec& spec, int multiple, Axis& axis);

}  // namespace fastload
