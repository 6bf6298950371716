#include "decode/jpeg/painter.h"

#include <algorithm>
#include <string>

#include "base/clock.h"
#include "base/error.h"

namespace fastload {
namespace {

constexpr int kEmitRows = 8;  // rows handed over at a time
constexpr size_t kMargin = 64;

void check_roi(const JpegHeader& header, Rect roi) {
  if (roi.x >= 0 && roi.y >= 0 && roi.width > 0 && roi.height > 0 && roi.x < header.width &&
      roi.y < header.height && roi.width <= header.width - roi.x &&
      roi.height <= header.height - roi.y) {
    return;
  }
  throw Error(ErrorKind::kValue,
              "The region must lie inside the picture of " + std::to_string(header.width) + "x" +
                  std::to_string(header.height) + " pixels and not be empty. Found: x " +
                  std::to_string(roi.x) + ", y " + std::to_string(roi.y) + ", " +
                  std::to_string(roi.width) + "x" + std::to_string(roi.height) + ".");
}

}  // namespace

uint64_t lap(JpegStageTimes* times, uint64_t JpegStageTimes::* stage, uint64_t since) {
  if (times == nullptr) return 0;
  const uint64_t now = now_ns();
  if (since != 0) times->*stage += now - since;
  return now;
}

void JpegPainter::begin(const JpegHeader& header, Rect roi, bool gray) {
  check_roi(header, roi);
  if (gray && header.component_count != 1) {
    throw Error(ErrorKind::kDecode, "JPEG: the header contradicts itself");
  }
  header_ = &header;
  gray_ = gray;
  roi_ = roi;
  next_row_ = roi.y;
  window_ = needed_mcus(header, roi);
  planes_.reset(header, window_);
  rgb_stride_ = (static_cast<size_t>(roi.width) * 3 + 63) / 64 * 64;
  const size_t overrun = 3 * kColorBlock + RowSink::kSlack;
  const size_t size = rgb_stride_ * kEmitRows + overrun;
  if (rgb_.size() < size) rgb_.resize(size);
  for (auto& row : upsampled_) {
    const size_t needed = static_cast<size_t>(roi.width) + 2 * kMargin + 2 * kColorBlock;
    if (row.size() < needed) row.resize(needed);
  }
}

void JpegPainter::end_mcu_row(int row, RowSink& sink, JpegStageTimes* times) {
  planes_.extend_edges(*header_, row);
  // Interpolation wants the chroma row below, so the last row waits for the next MCUs.
  const bool last = row + 1 == header_->mcu_rows;
  const int held = interpolates_rows(*header_) && !last ? 1 : 0;
  emit((row + 1) * header_->mcu_height - held, sink, times);
}

void JpegPainter::emit(int rows_end, RowSink& sink, JpegStageTimes* times) {
  rows_end = std::min(rows_end, roi_.y + roi_.height);
  while (next_row_ < rows_end) {
    const int count = std::min(kEmitRows, rows_end - next_row_);
    uint64_t clock = lap(times, &JpegStageTimes::color, 0);
    for (int i = 0; i < count; ++i) {
      emit_row(next_row_ + i, rgb_.data() + static_cast<size_t>(i) * rgb_stride_);
    }
    clock = lap(times, &JpegStageTimes::color, clock);
    sink.rows(rgb_.data(), rgb_stride_, next_row_ - roi_.y, count);
    lap(times, &JpegStageTimes::sink, clock);
    next_row_ += count;
  }
}

void JpegPainter::emit_row(int y, uint8_t* rgb) {
  const uint8_t* const luma = planes_.at(0, roi_.x, y);
  if (gray_) {
    std::copy_n(luma, roi_.width, rgb);
    return;
  }
  if (header_->component_count == 1) {
    color_.gray_to_rgb(luma, rgb, roi_.width);
    return;
  }
  color_.ycc_to_rgb(luma, chroma_row(1, y), chroma_row(2, y), rgb, roi_.width);
}

// The chroma samples of picture row `y` for the region's columns, at the picture's resolution.
const uint8_t* JpegPainter::chroma_row(int component, int y) {
  const bool halved_columns = header_->mcu_width == 16, halved_rows = header_->mcu_height == 16;
  const int near = halved_rows ? y / 2 : y;
  if (!halved_columns && !halved_rows) return planes_.at(component, roi_.x, near);
  uint8_t* const out = upsampled_[static_cast<size_t>(component - 1)].data() + kMargin;
  const int far =
      std::clamp(near + ((y & 1) != 0 ? 1 : -1), 0, header_->plane_height(component) - 1);
  if (!halved_columns) {
    color_.h1v2(planes_.at(component, roi_.x, near), planes_.at(component, roi_.x, far),
                1 + (y & 1), out, roi_.width);
    return out;
  }
  const int first = roi_.x / 2, count = (roi_.x + roi_.width + 1) / 2 - first;
  const uint8_t* const near_row = planes_.at(component, first, near);
  if (!interpolates_columns(*header_)) {
    for (int i = 0; i < 2 * count; ++i) out[i] = near_row[i / 2];
  } else if (halved_rows) {
    color_.h2v2(near_row, planes_.at(component, first, far), out, count);
  } else {
    color_.h2v1(near_row, out, count);
  }
  return out + (roi_.x & 1);
}

}  // namespace fastload
