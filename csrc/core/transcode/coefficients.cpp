#include "transcode/coefficients.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "decode/coefficients/record.h"
#include "transcode/coding_choice.h"
#include "transcode/jpeg_parts.h"
#include "transcode/rest.h"
#include "transcode/segment_writer.h"

namespace fastload {
namespace {

constexpr size_t kTogether = 8;  // segments unpacked at a time

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::kDecode, "cannot become a coefficient record: " + why);
}

size_t blocks_per_row(const JpegHeader& header, size_t component) {
  return static_cast<size_t>(header.mcus_per_row) * header.components[component].h;
}

// Where the blocks of a segment lie in the components' arrays, in the segment's order.
template <class Parts, class Block>
void locate_segment(Parts& parts, int mcu_row, int first_mcu, const SegmentShape& shape,
                    Block* blocks) {
  size_t row_in_mcu = 0;
  for (size_t r = 0; r < shape.rows; ++r) {
    const size_t c = shape.component[r];
    row_in_mcu = r > 0 && shape.component[r - 1] == c ? row_in_mcu + 1 : 0;
    const JpegComponent& component = parts.header.components[c];
    const size_t row = static_cast<size_t>(mcu_row) * component.v + row_in_mcu;
    const size_t column = static_cast<size_t>(first_mcu) * component.h;
    auto* block = &parts.blocks[c][(row * blocks_per_row(parts.header, c) + column) * 64];
    for (size_t i = 0; i < shape.blocks[r]; ++i, block += 64) *blocks++ = block;
  }
}

// Calls visit(segment, row of MCUs, first MCU, shape) for each segment in raster order.
template <class Visit>
void for_each_segment(const CoefficientRecord& record, Visit visit) {
  const SegmentShape whole = segment_shape(record.header, record.segment_mcus);
  const int last = record.segments_per_row - 1;
  const SegmentShape end = segment_shape(record.header, record.mcus_of(last));
  size_t segment = 0;
  for (int row = 0; row < record.header.mcu_rows; ++row) {
    for (int i = 0; i <= last; ++i, ++segment) {
      visit(segment, row, i * record.segment_mcus, i == last ? end : whole);
    }
  }
}

void lay_out_segments(CoefficientRecord& record) {
  record.segment_mcus = coefficient_segment_mcus(record.header);
  record.segments_per_row =
      (record.header.mcus_per_row + record.segment_mcus - 1) / record.segment_mcus;
}

std::vector<uint8_t> write(const JpegParts& parts, CoefficientForm form) {
  CoefficientRecord record;
  record.header = parts.header;
  record.is_progressive = parts.is_progressive;
  record.coding.form = form;
  lay_out_segments(record);
  choose_coding(parts, record);
  const MaskClasses classes(record.coding);
  const PackSegment pack = pack_segment(simd_level());
  std::vector<uint16_t> lengths(record.segment_count());
  std::vector<uint8_t> segments(parts.rest.size() + kMostSegmentBytes);
  size_t used = 0;
  for_each_segment(record, [&](size_t segment, int row, int mcu, const SegmentShape& shape) {
    std::array<const int16_t*, kMaxSegmentBlocks> blocks;
    locate_segment(parts, row, mcu, shape, blocks.data());
    if (segments.size() < used + kMostSegmentBytes) segments.resize(2 * used + kMostSegmentBytes);
    const size_t size = pack(record.coding, classes, shape, blocks.data(), &segments[used]);
    lengths[segment] = static_cast<uint16_t>(size);
    used += size;
  });
  return write_record(record, lengths, Bytes(segments).first(used), parts.rest);
}

// The record's coefficients, where split_jpeg() had them.
void read(Bytes bytes, const DecodeLimits& limits, JpegParts& parts) {
  CoefficientRecord record;
  read_record(bytes, limits, record);
  check_record_crc(bytes);
  parts.header = record.header;
  parts.is_progressive = record.is_progressive;
  parts.rest.assign(record.rest.begin(), record.rest.end());
  for (size_t c = 0; c < static_cast<size_t>(record.header.component_count); ++c) {
    const JpegComponent& component = record.header.components[c];
    parts.blocks[c].resize(blocks_per_row(record.header, c) * component.v *
                           static_cast<size_t>(record.header.mcu_rows) * 64);
  }
  struct Waiting {
    int row, mcu;
    SegmentShape shape;
  };
  std::array<Waiting, kTogether> waiting;
  std::array<SegmentSource, kTogether> sources;
  std::vector<SegmentBlocks> unpacked(kTogether);
  size_t count = 0;
  const SegmentKernels& kernels = segment_kernels(simd_level());
  const auto flush = [&] {
    if (!kernels.unpack(record.coding, sources.data(), count, unpacked.data())) {
      throw Error(ErrorKind::kDecode, "coefficient record: a segment in row of MCUs " +
                                          std::to_string(waiting[0].row) + " is damaged");
    }
    for (size_t i = 0; i < count; ++i) {
      std::array<int16_t*, kMaxSegmentBlocks> blocks;
      locate_segment(parts, waiting[i].row, waiting[i].mcu, waiting[i].shape, blocks.data());
      for (size_t block = 0; block < waiting[i].shape.block_count; ++block) {
        expand_block(unpacked[i], block, blocks[block]);
      }
    }
    count = 0;
  };
  const uint8_t* at = record.segments.data();
  for_each_segment(record, [&](size_t segment, int row, int mcu, const SegmentShape& shape) {
    waiting[count] = {row, mcu, shape};
    sources[count] = {at, record.length(segment), &waiting[count].shape};
    at += sources[count].size;
    if (++count == kTogether) flush();
  });
  if (count > 0) flush();
}

}  // namespace

std::vector<uint8_t> to_coefficients(Bytes jpeg, CoefficientForm form, const DecodeLimits& limits) {
  JpegParts parts;
  split_jpeg(jpeg, limits, parts);
  // Most encoders fill up bytes with ones, as T.81 says.
  for (const bool pads_with_ones : {true, false}) {
    set_padding(parts.rest, pads_with_ones);
    std::vector<uint8_t> record = write(parts, form);
    const std::vector<uint8_t> again = to_jpeg(record, limits);
    if (std::equal(again.begin(), again.end(), jpeg.begin(), jpeg.end())) return record;
  }
  refuse("the file rebuilt from it would differ (its encoder made unusual choices)");
}

std::vector<uint8_t> to_jpeg(Bytes record, const DecodeLimits& limits) {
  JpegParts parts;
  read(record, limits, parts);
  return join_jpeg(parts);
}

}  // namespace fastload
