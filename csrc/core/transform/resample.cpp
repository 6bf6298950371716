// The resize as a stream: lines come in, go through one or two passes, and leave as soon as they
// are complete. Between the passes lies a ring with just the lines that the vertical filter still
// needs.
#include "transform/resample.h"

#include <cstring>
#include <string>

#include "base/error.h"
#include "transform/kernels.h"
#include "transform/resample_any.h"

namespace fastload {
namespace {

AxisSpec horizontal_spec(const View& view, Filter filter) {
  return {view.crop.width, view.resized_width, filter, view.window.x, view.window.width, view.flip};
}

AxisSpec vertical_spec(const View& view, Filter filter) {
  return {view.crop.height, view.resized_height, filter, view.window.y, view.window.height, false};
}

bool needs_pass(const AxisSpec& spec) {
  return !spec.identity() || spec.mirrored || spec.first < 0 ||
         spec.first + spec.count > spec.out_size;
}

// Pillow 13 (pull request 9549): "If height is scaled down significantly more than width".
bool vertical_first(const AxisSpec& h, const AxisSpec& v) {
  if (h.step != 0) return false;
  const int64_t rows_less = int64_t{v.in_size} - v.out_size;
  const int64_t columns_less = int64_t{h.in_size} - h.out_size;
  return rows_less > 0 && rows_less > 2 * columns_less;
}

void check_sides(const View& view) {
  constexpr int kMaxSide = 1 << 24;  // Pillow keeps box sides in float
  const auto check = [](const char* what, int value) {
    if (value >= 1 && value <= kMaxSide) return;
    throw Error(ErrorKind::kValue, std::string(what) + " must be in [1, 16777216] pixels. Found: " +
                                       std::to_string(value) + ".");
  };
  check("Width of the crop", view.crop.width);
  check("Height of the crop", view.crop.height);
  check("Width after resizing", view.resized_width);
  check("Height after resizing", view.resized_height);
  check("Width of the window", view.window.width);
  check("Height of the window", view.window.height);
}

size_t line_stride(size_t bytes) { return (bytes + RowSink::kSlack + 63) / 64 * 64; }

}  // namespace

Rect source_rect(const View& view, Filter filter) {
  check_sides(view);
  const Span x = source_span(horizontal_spec(view, filter));
  const Span y = source_span(vertical_spec(view, filter));
  return {view.crop.x + x.begin, view.crop.y + y.begin, x.end - x.begin, y.end - y.begin};
}

Rect source_rect(const Placing& placing) {
  const Span x = source_span(placing.across), y = source_span(placing.down);
  return {x.begin, y.begin, x.end - x.begin, y.end - y.begin};
}

struct Resampler::Impl {
  enum class Passes { kNone, kHorizontal, kVertical, kHorizontalVertical, kVerticalHorizontal };
  static constexpr int kBatch = ResampleKernels::kBatch;

  const ResampleKernels* kernels = nullptr;
  RowSink* out = nullptr;
  Passes passes = Passes::kNone;
  PixelFormat format;
  bool is_rgb8 = true;
  size_t pixel_bytes = 3;
  Axis h;
  Axis v;
  // What an axis was filled for: one that stays as it was need not be filled again.
  struct Filled {
    AxisSpec spec;
    PixelFormat format;
    const ResampleKernels* kernels = nullptr;
    bool operator==(const Filled&) const = default;
  };
  Filled h_filled;
  Filled v_filled;
  Rect source;
  int width = 0;    // of the window, pixels
  int height = 0;   // of the window, rows
  int taken = 0;    // source rows so far
  int emitted = 0;  // window rows so far
  int pending = 0;  // rows in `lines` that wait for the second pass
  Buffer<uint8_t> ring;
  size_t ring_stride = 0;
  int ring_mask = 0;
  Buffer<uint8_t> lines;  // kBatch lines: the vertical pass's output
  size_t lines_stride = 0;
  Buffer<uint8_t> results;  // kBatch lines: what leaves, where the last pass is horizontal
  size_t results_stride = 0;
  Buffer<const uint8_t*> taps;

  void begin(const Placing& placing, const Rect& from, const PixelFormat& of, RowSink& sink,
             bool across_first = false);
  void prepare_axis(const AxisSpec& spec, bool horizontal);
  void fill(const AxisSpec& spec, bool horizontal, Axis& axis);
  void resize_columns(const uint8_t* const* from, uint8_t* const* to, int count);
  void resize_rows(int row, size_t bytes, uint8_t* to);
  void prepare_memory();
  void take(const uint8_t* pixels, size_t stride, int count);
  void take_horizontal(const uint8_t* pixels, size_t stride, int count);
  void take_into_ring(const uint8_t* pixels, size_t stride, int count);
  void emit_vertical();
  void finish_batch();
  void emit(const uint8_t* pixels, size_t stride, int count);
  uint8_t* ring_line(int row) { return ring.data() + ring_stride * (row & ring_mask); }
};

void Resampler::Impl::begin(const Placing& placing, const Rect& from, const PixelFormat& of,
                            RowSink& sink, bool across_first) {
  out = nullptr;
  format = of;
  is_rgb8 = format.is_rgb8();
  pixel_bytes = format.pixel_bytes();
  source = from;
  kernels = &FASTLOAD_KERNEL_AT(simd_level(), kResample);
  const auto& [hs, vs] = placing;
  width = hs.count;
  height = vs.count;
  taken = emitted = pending = 0;
  const bool need_h = needs_pass(hs);
  const bool need_v = needs_pass(vs);
  if (need_h) prepare_axis(hs, true);
  if (need_v) prepare_axis(vs, false);
  const bool down_first = !across_first && vertical_first(hs, vs);
  passes = !need_v      ? (need_h ? Passes::kHorizontal : Passes::kNone)
           : !need_h    ? Passes::kVertical
           : down_first ? Passes::kVerticalHorizontal
                        : Passes::kHorizontalVertical;
  prepare_memory();
  out = &sink;
}

void Resampler::Impl::prepare_axis(const AxisSpec& spec, bool horizontal) {
  Axis& axis = horizontal ? h : v;
  Filled& filled = horizontal ? h_filled : v_filled;
  const Filled wanted{spec, format, kernels};
  if (filled == wanted) return;
  filled = {};  // should filling fail
  fill(spec, horizontal, axis);
  filled = wanted;
}

void Resampler::Impl::fill(const AxisSpec& spec, bool horizontal, Axis& axis) {
  // Kernels take 8 bits: of any channels vertically, of RGB horizontally.
  const bool plain = format.bits == 16 || (horizontal && !is_rgb8);
  const int multiple = plain        ? 1
                       : horizontal ? kernels->horizontal_multiple
                                    : kernels->vertical_multiple;
  spec.identity() ? fill_identity(spec, multiple, axis)
                  : FASTLOAD_KERNEL_AT(simd_level(), fill_axis)(spec, multiple, axis);
  if (format.bits == 16) return fill_exact(spec, axis);
  if (plain) return pack_any(axis);
  horizontal ? kernels->pack_horizontal(axis) : kernels->pack_vertical(axis);
}

void Resampler::Impl::resize_columns(const uint8_t* const* from, uint8_t* const* to, int count) {
  if (is_rgb8) return kernels->horizontal(h, from, to, count);
  const auto channels = static_cast<size_t>(format.channels);
  format.bits == 16 ? horizontal_wide(h, channels, from, to, count)
                    : horizontal_any(h, channels, from, to, count);
}

void Resampler::Impl::resize_rows(int row, size_t bytes, uint8_t* to) {
  format.bits == 16 ? vertical_wide(v, row, taps.data(), bytes / 2, to)
                    : kernels->vertical(v, row, taps.data(), bytes, to);
}

void Resampler::Impl::prepare_memory() {
  if (passes == Passes::kNone) return;
  const bool h_first = passes == Passes::kHorizontalVertical;
  const size_t source_bytes = static_cast<size_t>(source.width) * pixel_bytes;
  if (passes != Passes::kVertical) {
    results_stride = line_stride(static_cast<size_t>(h.stride) * pixel_bytes);
  }
  if (passes == Passes::kHorizontal || passes == Passes::kVerticalHorizontal) {
    results.reserve(results_stride * kBatch);
  }
  if (passes == Passes::kHorizontal) return;
  ring_stride = h_first ? results_stride : line_stride(source_bytes);
  lines_stride = ring_stride;
  lines.reserve(lines_stride * kBatch);
  taps.reserve(static_cast<size_t>(v.taps));
  int lines_kept = 1;
  while (lines_kept < v.taps + kBatch) lines_kept *= 2;
  ring_mask = lines_kept - 1;
  ring.reserve(ring_stride * lines_kept);
}

void Resampler::Impl::take(const uint8_t* pixels, size_t stride, int count) {
  if (passes == Passes::kNone) {
    emit(pixels, stride, count);
    taken += count;
    return;
  }
  for (int done = 0; done < count; done += kBatch) {
    const int n = std::min(kBatch, count - done);
    const uint8_t* first = pixels + stride * done;
    if (passes == Passes::kHorizontal || passes == Passes::kHorizontalVertical) {
      take_horizontal(first, stride, n);
    } else {
      take_into_ring(first, stride, n);
    }
    taken += n;
    if (passes != Passes::kHorizontal) emit_vertical();
  }
}

void Resampler::Impl::take_horizontal(const uint8_t* pixels, size_t stride, int count) {
  const uint8_t* from[kBatch] = {};
  uint8_t* to[kBatch] = {};
  const bool last_pass = passes == Passes::kHorizontal;
  for (int i = 0; i < count; ++i) {
    from[i] = pixels + stride * i;
    to[i] = last_pass ? results.data() + results_stride * i : ring_line(taken + i);
  }
  resize_columns(from, to, count);
  if (last_pass) emit(results.data(), results_stride, count);
}

void Resampler::Impl::take_into_ring(const uint8_t* pixels, size_t stride, int count) {
  const size_t bytes = static_cast<size_t>(source.width) * pixel_bytes;
  for (int i = 0; i < count; ++i) std::memcpy(ring_line(taken + i), pixels + stride * i, bytes);
}

// Every output row whose source rows have all come.
void Resampler::Impl::emit_vertical() {
  const bool last_pass = passes != Passes::kVerticalHorizontal;
  const int across = passes == Passes::kHorizontalVertical ? width : source.width;
  const size_t bytes = pixel_bytes * static_cast<size_t>(across);
  while (emitted + pending < height) {
    const int row = emitted + pending;
    const int first = v.first[row];
    // Taps behind the last source row have a weight of 0 and read any line.
    if (std::min(first + v.taps, source.height) > taken) break;
    for (int t = 0; t < v.taps; ++t) taps[t] = ring_line(std::min(first + t, source.height - 1));
    resize_rows(row, bytes, lines.data() + lines_stride * pending);
    ++pending;
    if (pending == kBatch) last_pass ? emit(lines.data(), lines_stride, pending) : finish_batch();
  }
  if (last_pass && pending > 0) emit(lines.data(), lines_stride, pending);
}

void Resampler::Impl::finish_batch() {
  const uint8_t* from[kBatch] = {};
  uint8_t* to[kBatch] = {};
  for (int i = 0; i < pending; ++i) {
    from[i] = lines.data() + lines_stride * i;
    to[i] = results.data() + results_stride * i;
  }
  resize_columns(from, to, pending);
  emit(results.data(), results_stride, pending);
}

void Resampler::Impl::emit(const uint8_t* pixels, size_t stride, int count) {
  out->rows(pixels, stride, emitted, count);
  emitted += count;
  pending = 0;
}

Resampler::Resampler() : impl_(std::make_unique<Impl>()) {}
Resampler::~Resampler() = default;

void Resampler::begin(const View& view, Filter filter, RowSink& out, const PixelFormat& format) {
  impl_->out = nullptr;  // should the view be none
  const Rect source = source_rect(view, filter);
  const Placing placing{horizontal_spec(view, filter), vertical_spec(view, filter)};
  impl_->begin(placing, source, format, out, view.across_first);
}

void Resampler::begin(const Placing& placing, RowSink& out, const PixelFormat& format) {
  impl_->out = nullptr;
  const Rect source = source_rect(placing);
  impl_->begin(placing, source, format, out);
}

void Resampler::rows(const uint8_t* pixels, size_t stride, int y, int count) {
  Impl& s = *impl_;
  if (s.out == nullptr || y != s.taken || count < 0 || count > s.source.height - s.taken) {
    throw Error(ErrorKind::kState, "Rows must come in order, row " + std::to_string(s.taken) +
                                       " of " + std::to_string(s.source.height) +
                                       " next. Found: " + std::to_string(count) + " rows from " +
                                       std::to_string(y) + ".");
  }
  s.take(pixels, stride, count);
}

void Resampler::restart() {
  Impl& s = *impl_;
  s.taken = s.emitted = s.pending = 0;
  if (s.out != nullptr) s.out->restart();
}

void Resampler::end() {
  Impl& s = *impl_;
  if (s.out == nullptr || s.taken != s.source.height) {
    throw Error(ErrorKind::kState, "The resize needs " + std::to_string(s.source.height) +
                                       " rows. Found: " + std::to_string(s.taken) + ".");
  }
  if (s.pending > 0) s.finish_batch();
  s.out = nullptr;
}

}  // namespace fastload
