#include "decode/jpeg/decoder.h"

#include <algorithm>

#include "base/error.h"

namespace fastload {
namespace {

constexpr int kStripBlocks = 32;  // luma blocks across, decoded before they are transformed
static_assert(static_cast<size_t>(kStripBlocks) * 3 <= BlockTargets::kMax);

}  // namespace

JpegDecoder::JpegDecoder(SimdLevel level)
    : level_(level), idct_(idct_kernel(level)), painter_(level), places_(idct_.places()) {}

bool JpegDecoder::open(Bytes file, const DecodeLimits& limits, const LoadedBytes* loaded) {
  const uint64_t start = lap(times_, &JpegStageTimes::parse, 0);
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
  lap(times_, &JpegStageTimes::parse, start);
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

void JpegDecoder::decode(Rect roi, RowSink& sink, EntryPoints entries, bool gray) {
  if (header_.component_count == 0) throw Error(ErrorKind::kState, "No JPEG is open.");
  const uint64_t clock = lap(times_, &JpegStageTimes::parse, 0);
  painter_.begin(header_, roi, gray);
  const McuWindow& window = painter_.window();
  scan_.open(file_, header_, entries, level_, window.row_end, file_begin_);
  const int first = window.row_begin * header_.mcus_per_row + window.column_begin;
  if (is_part_ && !scan_.can_begin_at(first)) throw NeedsWhole();
  plan_targets();
  lap(times_, &JpegStageTimes::parse, clock);
  for (int row = window.row_begin; row < window.row_end; ++row) {
    decode_mcu_row(row);
    painter_.end_mcu_row(row, sink, times_);
  }
}

// Lays out the coefficients of a strip of MCUs: the blocks that lie side by side in the picture are
// neighbours in memory.
void JpegDecoder::plan_targets() {
  const McuWindow& window = painter_.window();
  strip_mcus_ =
      std::min(kStripBlocks / header_.components[0].h, window.column_end - window.column_begin);
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
  const McuWindow& window = painter_.window();
  JpegPlanes& planes = painter_.planes();
  for (int column = window.column_begin; column < window.column_end; column += strip_mcus_) {
    const int count = std::min(strip_mcus_, window.column_end - column);
    uint64_t clock = lap(times_, &JpegStageTimes::entropy, 0);
    coefs_dirty_ = true;
    scan_.decode(row * header_.mcus_per_row + column, count, targets_, places_);
    clock = lap(times_, &JpegStageTimes::entropy, clock);
    int row_index = 0;
    for (int c = 0; c < header_.component_count; ++c) {
      const JpegComponent& component = header_.components[static_cast<size_t>(c)];
      for (int v = 0; v < component.v; ++v, ++row_index) {
        idct_.transform(coefs_.data() + strip_offset_[static_cast<size_t>(row_index)],
                        header_.quant[component.quant].steps.data(),
                        planes.blocks(c, row * component.v + v, column), planes.stride(c),
                        count * component.h);
      }
    }
    coefs_dirty_ = false;
    lap(times_, &JpegStageTimes::idct, clock);
  }
}

}  // namespace fastload
