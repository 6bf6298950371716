#include "decode/jpeg/decoder.h"

#include <algorithm>
#include <string>

#include "base/clock.h"
#include "base/error.h"

namespace fastload {
namespace {

constexpr int kEmitRows = 8;      // rows handed over at a time
constexpr int kStripBlocks = 32;  // luma blocks across, decoded before they are transformed
static_assert(static_cast<size_t>(kStripBlocks) * 3 <= BlockTargets::kMax);
constexpr size_t kMargin = 64;

}  // namespace

JpegDecoder::JpegDecoder(SimdLevel level)
    : level_(level),
      idct_(idct_kernel(level)),
      color_(color_kernels(level)),
      places_(idct_.places()) {}

uint64_t JpegDecoder::lap(uint64_t JpegStageTimes::* stage, uint64_t since) {
  if (times_ == nullptr) return 0;
  const uint64_t now = now_ns();
  if (since != 0) times_->*stage += now - since;
  return now;
}

bool JpegDecoder::open(Bytes file, const DecodeLimits& limits, const LoadedBytes* loaded) {
  const uint64_t start = lap(&JpegStageTimes::parse, 0);
  file_ = file;
  file_begin_ = 0;
  is_part_ = loaded != nullptr;
  Bytes head = file;
  if (is_part_) {
    head = file.first(loaded->head);
    if (loaded->begin != loaded->end) {
      file_ = file.subspan(loaded->head);
      file_begin_ = loaded->begin;
    }
  }
  const bool ours = parse_jpeg(head, limits, header_);
  if (!ours) header_ = JpegHeader{};
  lap(&JpegStageTimes::parse, start);
  return ours;
}

ImageInfo JpegDecoder::info() const {
  ImageInfo info;
  info.codec = Codec::kJpeg;
  info.width = static_cast<uint32_t>(header_.width);
  info.height = static_cast<uint32_t>(header_.height);
  info.channels = static_cast<uint8_t>(header_.component_count);
  return info;
}

void JpegDecoder::check_roi(Rect roi) const {
  if (header_.component_count == 0) throw Error(ErrorKind::kState, "No JPEG is open.");
  if (roi.x >= 0 && roi.y >= 0 && roi.width > 0 && roi.height > 0 && roi.x < header_.width &&
      roi.y < header_.height && roi.width <= header_.width - roi.x &&
      roi.height <= header_.height - roi.y) {
    return;
  }
  throw Error(ErrorKind::kValue,
              "The region must lie inside the picture of " + std::to_string(header_.width) + "x" +
                  std::to_string(header_.height) + " pixels and not be empty. Found: x " +
                  std::to_string(roi.x) + ", y " + std::to_string(roi.y) + ", " +
                  std::to_string(roi.width) + "x" + std::to_string(roi.height) + ".");
}

void JpegDecoder::decode(Rect roi, RowSink& sink, EntryPoints entries, bool gray) {
  check_roi(roi);
  gray_ = gray;
  if (gray && header_.component_count != 1) {
    throw Error(ErrorKind::kDecode, "JPEG: the header contradicts itself");
  }
  uint64_t clock = lap(&JpegStageTimes::parse, 0);
  plan(roi);
  scan_.open(file_, header_, entries, level_, window_.row_end, file_begin_);
  const int first = window_.row_begin * header_.mcus_per_row + window_.column_begin;
  if (is_part_ && !scan_.can_begin_at(first)) throw NeedsWhole();
  plan_targets();
  lap(&JpegStageTimes::parse, clock);
  for (int row = window_.row_begin; row < window_.row_end; ++row) {
    decode_mcu_row(row);
    // Interpolation wants the chroma row below, so the last row waits for the next MCUs.
    const bool last = row + 1 == header_.mcu_rows;
    const int held = interpolates_rows(header_) && !last ? 1 : 0;
    emit((row + 1) * header_.mcu_height - held, sink);
  }
}

void JpegDecoder::plan(Rect roi) {
  roi_ = roi;
  next_row_ = roi.y;
  window_ = needed_mcus(header_, roi);
  planes_.reset(header_, window_);
  rgb_stride_ = (static_cast<size_t>(roi.width) * 3 + 63) / 64 * 64;
  const size_t overrun = 3 * kColorBlock + RowSink::kSlack;
  const size_t size = rgb_stride_ * kEmitRows + overrun;
  if (rgb_.size() < size) rgb_.resize(size);
  for (auto& row : upsampled_) {
    const size_t needed = static_cast<size_t>(roi.width) + 2 * kMargin + 2 * kColorBlock;
    if (row.size() < needed) row.resize(needed);
  }
}

// Lays out the coefficients of a strip of MCUs: the blocks that lie side by side in the picture are
// neighbours in memory.
void JpegDecoder::plan_targets() {
  strip_mcus_ =
      std::min(kStripBlocks / header_.components[0].h, window_.column_end - window_.column_begin);
  size_t size = 0, row = 0;
  for (int c = 0; c < header_.component_count; ++c) {
    const JpegComponent& component = header_.components[static_cast<size_t>(c)];
    for (int v = 0; v < component.v; ++v, ++row) {
      strip_offset_[row] = size;
      size += idct_.row_size(strip_mcus_ * component.h);
    }
  }
  if (coefs_.size() < size) {
    coefs_.resize(size);
    coefs_dirty_ = true;
  }
  if (coefs_dirty_) std::fill(coefs_.begin(), coefs_.end(), int16_t{0});
  coefs_dirty_ = false;
  size_t block = 0;
  for (int mcu = 0; mcu < strip_mcus_; ++mcu) {
    row = 0;
    for (int c = 0; c < header_.component_count; ++c) {
      const JpegComponent& component = header_.components[static_cast<size_t>(c)];
      for (int v = 0; v < component.v; ++v, ++row) {
        for (int h = 0; h < component.h; ++h, ++block) {
          const size_t offset = strip_offset_[row] + idct_.block_offset(mcu * component.h + h);
          targets_.set(block, scan_.tables(c), coefs_.data() + offset);
        }
      }
    }
  }
  targets_.set(block, scan_.tables(0), coefs_.data());  // closes the list; never written to
}

void JpegDecoder::decode_mcu_row(int row) {
  for (int column = window_.column_begin; column < window_.column_end; column += strip_mcus_) {
    const int count = std::min(strip_mcus_, window_.column_end - column);
    uint64_t clock = lap(&JpegStageTimes::entropy, 0);
    coefs_dirty_ = true;
    scan_.decode(row * header_.mcus_per_row + column, count, targets_, places_);
    clock = lap(&JpegStageTimes::entropy, clock);
    int row_index = 0;
    for (int c = 0; c < header_.component_count; ++c) {
      const JpegComponent& component = header_.components[static_cast<size_t>(c)];
      for (int v = 0; v < component.v; ++v, ++row_index) {
        idct_.transform(coefs_.data() + strip_offset_[static_cast<size_t>(row_index)],
                        header_.quant[component.quant].steps.data(),
                        planes_.blocks(c, row * component.v + v, column), planes_.stride(c),
                        count * component.h);
      }
    }
    coefs_dirty_ = false;
    lap(&JpegStageTimes::idct, clock);
  }
  planes_.extend_edges(header_, row);
}

void JpegDecoder::emit(int rows_end, RowSink& sink) {
  rows_end = std::min(rows_end, roi_.y + roi_.height);
  while (next_row_ < rows_end) {
    const int count = std::min(kEmitRows, rows_end - next_row_);
    uint64_t clock = lap(&JpegStageTimes::color, 0);
    for (int i = 0; i < count; ++i) {
      emit_row(next_row_ + i, rgb_.data() + static_cast<size_t>(i) * rgb_stride_);
    }
    clock = lap(&JpegStageTimes::color, clock);
    sink.rows(rgb_.data(), rgb_stride_, next_row_ - roi_.y, count);
    lap(&JpegStageTimes::sink, clock);
    next_row_ += count;
  }
}

void JpegDecoder::emit_row(int y, uint8_t* rgb) {
  const uint8_t* const luma = planes_.at(0, roi_.x, y);
  if (gray_) {
    std::copy_n(luma, roi_.width, rgb);
    return;
  }
  if (header_.component_count == 1) {
    color_.gray_to_rgb(luma, rgb, roi_.width);
    return;
  }
  color_.ycc_to_rgb(luma, chroma_row(1, y), chroma_row(2, y), rgb, roi_.width);
}

// The chroma samples of picture row `y` for the region's columns, at the picture's resolution.
const uint8_t* JpegDecoder::chroma_row(int component, int y) {
  const bool halved_columns = header_.mcu_width == 16, halved_rows = header_.mcu_height == 16;
  const int near = halved_rows ? y / 2 : y;
  if (!halved_columns && !halved_rows) return planes_.at(component, roi_.x, near);
  uint8_t* const out = upsampled_[static_cast<size_t>(component - 1)].data() + kMargin;
  const int far =
      std::clamp(near + ((y & 1) != 0 ? 1 : -1), 0, header_.plane_height(component) - 1);
  if (!halved_columns) {
    color_.h1v2(planes_.at(component, roi_.x, near), planes_.at(component, roi_.x, far),
                1 + (y & 1), out, roi_.width);
    return out;
  }
  const int first = roi_.x / 2, count = (roi_.x + roi_.width + 1) / 2 - first;
  const uint8_t* const near_row = planes_.at(component, first, near);
  if (!interpolates_columns(header_)) {
    for (int i = 0; i < 2 * count; ++i) out[i] = near_row[i / 2];
  } else if (halved_rows) {
    color_.h2v2(near_row, planes_.at(component, first, far), out, count);
  } else {
    color_.h2v1(near_row, out, count);
  }
  return out + (roi_.x & 1);
}

}  // namespace fastload
