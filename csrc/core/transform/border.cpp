#include "transform/border.h"

#include <algorithm>
#include <cstring>

namespace fastload {

RowSink& BorderSink::begin(const Rect& part, int width, int height,
                           const std::vector<uint8_t>& pixel, RowSink& out) {
  if (part == Rect{0, 0, width, height}) return out;
  const auto bytes = [&](int pixels) { return static_cast<size_t>(pixels) * pixel.size(); };
  out_ = &out;
  part_ = part;
  height_ = height;
  emitted_ = 0;
  const int first = std::clamp(part.x, 0, width);
  const int end = std::clamp(part.x + part.width, first, width);
  skipped_ = bytes(first - part.x);
  left_ = bytes(first);
  copied_ = end > part.x ? bytes(end - first) : 0;
  line_bytes_ = bytes(width);
  stride_ = line_bytes_ + kSlack;
  blank_.resize(stride_);
  for (size_t at = 0; at < line_bytes_; at += pixel.size()) {
    std::memcpy(blank_.data() + at, pixel.data(), pixel.size());
  }
  if (copied_ == 0 || copied_ == line_bytes_) return *this;
  lines_.resize(stride_ * kLines);
  for (int i = 0; i < kLines; ++i) {
    std::memcpy(lines_.data() + stride_ * static_cast<size_t>(i), blank_.data(), line_bytes_);
  }
  return *this;
}

// Rows of fill, before this row.
void BorderSink::fill_to(int row) {
  row = std::min(row, height_);
  if (row <= emitted_) return;
  out_->rows(blank_.data(), 0, emitted_, row - emitted_);
  emitted_ = row;
}

void BorderSink::copy(const uint8_t* pixels, size_t stride, int count) {
  if (copied_ == line_bytes_) {
    out_->rows(pixels + skipped_, stride, emitted_, count);
    emitted_ += count;
    return;
  }
  for (int done = 0; done < count; done += kLines) {
    const int n = std::min(kLines, count - done);
    for (int i = 0; i < n; ++i) {
      const uint8_t* const from = pixels + stride * static_cast<size_t>(done + i) + skipped_;
      std::memcpy(lines_.data() + stride_ * static_cast<size_t>(i) + left_, from, copied_);
    }
    out_->rows(lines_.data(), stride_, emitted_, n);
    emitted_ += n;
  }
}

void BorderSink::rows(const uint8_t* pixels, size_t stride, int y, int count) {
  const int first = part_.y + y;
  const int from = std::clamp(first, 0, height_);
  const int end = std::clamp(first + count, from, height_);
  fill_to(from);
  if (end > from && copied_ > 0) {
    copy(pixels + stride * static_cast<size_t>(from - first), stride, end - from);
  }
  fill_to(y + count == part_.height ? height_ : end);
}

void BorderSink::restart() {
  emitted_ = 0;
  out_->restart();
}

RowSink& MirrorSink::begin(const View& view, const Rect& part, size_t pixel_bytes, RowSink& out) {
  out_ = nullptr;
  if (view.border == Border::kFill) return out;
  out_ = &out;
  pixel_bytes_ = pixel_bytes;
  row_bytes_ = pixel_bytes * static_cast<size_t>(part.width);
  border_places(view, part, columns_, rows_);
  part_.reserve(row_bytes_ * static_cast<size_t>(part.height));
  line_.resize(columns_.size() * pixel_bytes + kSlack);
  return *this;
}

void MirrorSink::rows(const uint8_t* pixels, size_t stride, int y, int count) {
  uint8_t* to = part_.data() + row_bytes_ * static_cast<size_t>(y);
  for (int i = 0; i < count; ++i, pixels += stride, to += row_bytes_) {
    std::memcpy(to, pixels, row_bytes_);
  }
}

void MirrorSink::end() {
  if (out_ == nullptr) return;
  int last = -1;
  for (size_t y = 0; y < rows_.size(); ++y) {
    const uint8_t* const from = part_.data() + row_bytes_ * static_cast<size_t>(rows_[y]);
    uint8_t* to = line_.data();
    for (size_t x = 0; x < columns_.size() && rows_[y] != last; ++x, to += pixel_bytes_) {
      std::memcpy(to, from + pixel_bytes_ * static_cast<size_t>(columns_[x]), pixel_bytes_);
    }
    last = rows_[y];
    out_->rows(line_.data(), line_.size(), static_cast<int>(y), 1);
  }
}

}  // namespace fastload
