#include "transform/nearest.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "transform/axis.h"

namespace fastload {
namespace {

// The source pixel of each of the window's pixels, counted from the first that is needed, and those
// that are needed.
Span positions(const AxisSpec& spec, bool summed, std::vector<int>& found) {
  found.assign(static_cast<size_t>(spec.count), -1);
  const double scale = static_cast<double>(spec.in_size) / spec.out_size;
  double sum = scale * 0.5;
  Span span{spec.in_size, 0};
  const int end = std::min(spec.first + spec.count, spec.out_size);
  for (int i = 0; i < end; ++i, sum += scale) {
    const int j = i - spec.first;
    if (j < 0) continue;
    const double at = summed ? sum : scale * (i + 0.5);
    const int source = std::min(static_cast<int>(at), spec.in_size - 1);
    found[static_cast<size_t>(spec.mirrored ? spec.count - 1 - j : j)] = source;
    span = {std::min(span.begin, source), std::max(span.end, source + 1)};
  }
  for (int& source : found) {
    if (source >= 0) source -= span.begin;
  }
  return span;
}

void gather(const uint8_t* from, const std::vector<int>& columns, size_t size, uint8_t* to) {
  for (const int column : columns) {
    if (column >= 0) std::memcpy(to, from + static_cast<size_t>(column) * size, size);
    to += size;
  }
}

template <size_t kSize>
void gather(const uint8_t* from, const std::vector<int>& columns, uint8_t* to) {
  for (const int column : columns) {
    if (column >= 0) std::memcpy(to, from + static_cast<size_t>(column) * kSize, kSize);
    to += kSize;
  }
}

// Takes what is not of the resized pixels [begin, begin + length) out of the window's, which are
// `first` and on.
void hide(std::vector<int>& places, bool mirrored, int first, int begin, int length) {
  const int count = static_cast<int>(places.size());
  for (int i = 0; i < count; ++i) {
    const int at = first + (mirrored ? count - 1 - i : i);
    if (at < begin || at >= begin + length) places[static_cast<size_t>(i)] = -1;
  }
}

}  // namespace

void nearest_positions(const View& view, std::vector<int>& columns, std::vector<int>& rows) {
  if (view.border != Border::kFill) {
    const View inner = without_fill(view);
    std::vector<int> x, y;
    border_places(view, inner.window, x, y);
    nearest_positions(inner, columns, rows);
    const auto chosen = [](const std::vector<int>& from, std::vector<int>& places) {
      for (int& place : places) place = from[static_cast<size_t>(place)];
    };
    chosen(columns, x);
    chosen(rows, y);
    columns = std::move(x);
    rows = std::move(y);
    return;
  }
  static_cast<void>(decoded_rect(view, false));  // the same views are refused
  const Rect& window = view.window;
  const Span x = positions(
      {view.crop.width, view.resized_width, {}, window.x, window.width, view.flip}, true, columns);
  const Span y = positions(
      {view.crop.height, view.resized_height, {}, window.y, window.height, false}, true, rows);
  for (int& column : columns) column = column < 0 ? -1 : column + view.crop.x + x.begin;
  for (int& row : rows) row = row < 0 ? -1 : row + view.crop.y + y.begin;
  if (view.shown != View::kAll) {
    const Rect& shown = view.shown;
    hide(columns, view.flip, window.x, shown.x, shown.width);
    hide(rows, false, window.y, shown.y, shown.height);
  }
  if (view.seen == View::kAll) return;
  const auto cut = [](std::vector<int>& places, int begin, int length) {
    for (int& place : places) place = place < begin || place >= begin + length ? -1 : place;
  };
  cut(columns, view.seen.x, view.seen.width);
  cut(rows, view.seen.y, view.seen.height);
}

void NearestSampler::begin(const View& view, const PixelFormat& format, int fill, RowSink& out) {
  out_ = nullptr;
  static_cast<void>(source_rect(view, Filter::kBilinear));  // the same views are refused
  format_ = format;
  const Rect& window = view.window;
  const AxisSpec across{view.crop.width, view.resized_width, {}, window.x, window.width, view.flip};
  const AxisSpec down{view.crop.height, view.resized_height, {}, window.y, window.height, false};
  const Span x = positions(across, format.bits == 8, columns_);
  const Span y = positions(down, format.bits == 8, rows_);
  source_ = {view.crop.x + x.begin, view.crop.y + y.begin, x.end - x.begin, y.end - y.begin};
  is_copy_ = !view.flip && view.crop.width == view.resized_width && columns_.front() >= 0 &&
             columns_.back() >= 0;
  blank_.resize(columns_.size() * format.pixel_bytes() + kSlack);
  for (size_t i = 0; i < columns_.size() * static_cast<size_t>(format.channels); ++i) {
    const auto value = static_cast<uint16_t>(fill);
    if (format.bits == 8) blank_[i] = static_cast<uint8_t>(fill);
    if (format.bits == 16) std::memcpy(&blank_[2 * i], &value, 2);
  }
  line_ = blank_;
  out_ = &out;
  restart();
}

void NearestSampler::restart() {
  taken_ = emitted_ = 0;
  if (out_ != nullptr) out_->restart();
}

// The window's next rows, as far as they show nothing of the picture.
void NearestSampler::emit_blank() {
  while (emitted_ < static_cast<int>(rows_.size()) && rows_[static_cast<size_t>(emitted_)] < 0) {
    out_->rows(blank_.data(), blank_.size(), emitted_++, 1);
  }
}

void NearestSampler::make_line(const uint8_t* pixels) {
  uint8_t* const to = line_.data();
  switch (format_.pixel_bytes()) {
    case 1:
      return gather<1>(pixels, columns_, to);
    case 2:
      return gather<2>(pixels, columns_, to);
    case 3:
      return gather<3>(pixels, columns_, to);
    default:
      return gather(pixels, columns_, format_.pixel_bytes(), to);
  }
}

void NearestSampler::rows(const uint8_t* pixels, size_t stride, int y, int count) {
  if (out_ == nullptr || y != taken_ || count < 0 || count > source_.height - taken_) {
    throw Error(ErrorKind::kState, "Rows must come in order, row " + std::to_string(taken_) +
                                       " of " + std::to_string(source_.height) +
                                       " next. Found: " + std::to_string(count) + " rows from " +
                                       std::to_string(y) + ".");
  }
  const int height = static_cast<int>(rows_.size());
  for (int i = 0; i < count; ++i, ++taken_) {
    emit_blank();
    const uint8_t* const from = pixels + stride * static_cast<size_t>(i);
    bool made = is_copy_;
    while (emitted_ < height && rows_[static_cast<size_t>(emitted_)] == taken_) {
      if (!made) make_line(from);
      made = true;
      out_->rows(is_copy_ ? from : line_.data(), line_.size(), emitted_++, 1);
    }
  }
  emit_blank();
}

void NearestSampler::end() {
  if (out_ == nullptr || taken_ != source_.height) {
    throw Error(ErrorKind::kState, "The resize needs " + std::to_string(source_.height) +
                                       " rows. Found: " + std::to_string(taken_) + ".");
  }
  out_ = nullptr;
}

}  // namespace fastload
