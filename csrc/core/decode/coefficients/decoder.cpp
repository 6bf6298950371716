#include "decode/coefficients/decoder.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace fastload {
namespace {

// Segments unpacked together: what depends on what lies before, in one, overlaps with the others.
constexpr size_t kTogether = 8;

}  // namespace

void CoefficientDecoder::open(Bytes bytes, const DecodeLimits& limits) {
  const uint64_t start = lap(times_, &JpegStageTimes::parse, 0);
  record_.header.component_count = 0;
  read_record(bytes, limits, record_);
  whole_ = segment_shape(record_.header, record_.segment_mcus);
  last_ = segment_shape(record_.header, record_.mcus_of(record_.segments_per_row - 1));
  lap(times_, &JpegStageTimes::parse, start);
}

void CoefficientDecoder::decode(Rect roi, RowSink& sink, bool gray) {
  if (record_.header.component_count == 0) {
    throw Error(ErrorKind::kState, "No coefficient record is open.");
  }
  const uint64_t clock = lap(times_, &JpegStageTimes::parse, 0);
  painter_.begin(record_.header, roi, gray);
  if (blocks_.empty()) blocks_.resize(kTogether);
  const McuWindow& window = painter_.window();
  const auto per_row = static_cast<size_t>(record_.segments_per_row);
  row_begin_ = record_.segments.data() +
               record_.bytes_of(0, static_cast<size_t>(window.row_begin) * per_row);
  lap(times_, &JpegStageTimes::parse, clock);
  for (int row = window.row_begin; row < window.row_end; ++row) {
    decode_mcu_row(row);
    const size_t first = static_cast<size_t>(row) * per_row;
    row_begin_ += record_.bytes_of(first, first + per_row);
    painter_.end_mcu_row(row, sink, times_);
  }
}

void CoefficientDecoder::decode_mcu_row(int row) {
  const McuWindow& window = painter_.window();
  const int begin = window.column_begin / record_.segment_mcus;
  const int end = (window.column_end - 1) / record_.segment_mcus + 1;
  const size_t first = static_cast<size_t>(row) * static_cast<size_t>(record_.segments_per_row);
  const uint8_t* at = row_begin_ + record_.bytes_of(first, first + static_cast<size_t>(begin));
  for (int column = begin; column < end; column += static_cast<int>(kTogether)) {
    const size_t count = std::min(kTogether, static_cast<size_t>(end - column));
    uint64_t clock = lap(times_, &JpegStageTimes::entropy, 0);
    at = unpack(first, column, count, at);
    clock = lap(times_, &JpegStageTimes::entropy, clock);
    for (size_t i = 0; i < count; ++i) {
      const int index = column + static_cast<int>(i);
      transform(row, index, blocks_[i], index + 1 == record_.segments_per_row ? last_ : whole_);
    }
    lap(times_, &JpegStageTimes::idct, clock);
  }
}

// Unpacks `count` segments of a row whose segments begin with number `first`, from column `column`
// and byte `at` on; returns where the next one begins.
const uint8_t* CoefficientDecoder::unpack(size_t first, int column, size_t count,
                                          const uint8_t* at) {
  std::array<SegmentSource, kTogether> sources;
  for (size_t i = 0; i < count; ++i) {
    const size_t index = static_cast<size_t>(column) + i;
    const bool is_last = index + 1 == static_cast<size_t>(record_.segments_per_row);
    sources[i] = {at, record_.length(first + index), is_last ? &last_ : &whole_};
    at += sources[i].size;
  }
  if (kernels_.unpack(record_.coding, sources.data(), count, blocks_.data())) return at;
  throw Error(ErrorKind::kDecode, "coefficient record: a segment from number " +
                                      std::to_string(first + static_cast<size_t>(column)) +
                                      " on is damaged");
}

// The part of the segment that the window has, into the planes.
void CoefficientDecoder::transform(int row, int column, const SegmentBlocks& blocks,
                                   const SegmentShape& shape) {
  const McuWindow& window = painter_.window();
  JpegPlanes& planes = painter_.planes();
  const int segment_begin = column * record_.segment_mcus;
  const int begin = std::max(window.column_begin, segment_begin);
  const int end = std::min(window.column_end, segment_begin + record_.segment_mcus);
  size_t block = 0;
  int row_in_mcu = 0;
  for (size_t r = 0; r < shape.rows; block += shape.blocks[r], ++r) {
    const int c = shape.component[r];
    row_in_mcu = r > 0 && shape.component[r - 1] == c ? row_in_mcu + 1 : 0;
    const JpegComponent& component = record_.header.components[static_cast<size_t>(c)];
    kernels_.transform(blocks, block + static_cast<size_t>((begin - segment_begin) * component.h),
                       static_cast<size_t>((end - begin) * component.h),
                       record_.header.quant[component.quant].steps.data(),
                       planes.blocks(c, row * component.v + row_in_mcu, begin), planes.stride(c));
  }
}

}  // namespace fastload
