// A coefficient record: a JPEG whose entropy-coded data is written as segments that vector units
// read (segment.h). FORMAT.md, "Coefficient records", is normative.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "decode/coefficients/segment.h"
#include "decode/decode.h"
#include "decode/jpeg/parser.h"

namespace fastload {

constexpr size_t kRecordHeaderBytes = 64;
constexpr uint8_t kRecordVersion = 1;

// What a record says. Views are into its bytes.
struct CoefficientRecord {
  JpegHeader header;  // size, components, quantisation and MCUs; Huffman tables are not in it
  bool is_progressive = false;  // the JPEG was
  SegmentCoding coding;
  // The same as `coding.low`, as the record has it: the last position of list A.
  std::array<std::array<uint8_t, kMaskBytes + 1>, 2> last_low{};
  int segment_mcus = 1;  // MCUs of a segment, at most
  int segments_per_row = 1;
  Bytes lengths;   // u16 for each segment, in raster order
  Bytes segments;  // kSegmentSlack bytes more can be read
  Bytes rest;      // what gives the JPEG back

  [[nodiscard]] size_t segment_count() const {
    return static_cast<size_t>(segments_per_row) * static_cast<size_t>(header.mcu_rows);
  }
  [[nodiscard]] size_t length(size_t segment) const {
    return lengths[2 * segment] | size_t{lengths[2 * segment + 1]} << 8;
  }
  // MCUs of the segments of column `index`.
  [[nodiscard]] int mcus_of(int index) const {
    const int left = header.mcus_per_row - index * segment_mcus;
    return left < segment_mcus ? left : segment_mcus;
  }
  // Bytes of the segments [begin, end) together.
  [[nodiscard]] size_t bytes_of(size_t begin, size_t end) const;
};

// Whether a record's first bytes are those of a coefficient record.
bool begins_coefficients(Bytes bytes);

// Size and kind by the first kRecordHeaderBytes bytes. Throws Error(kDecode).
ImageInfo probe_coefficients(Bytes bytes);

// Reads everything but the segments. Throws Error(kDecode) for a header that breaks the format or
// lengths that do not fit the record, Error(kLimit) for a picture that is too large; nothing is
// allocated. The CRC is left to check_crc(): whoever reads records from a set has checked the
// index's CRC of all bytes.
void read_record(Bytes bytes, const DecodeLimits& limits, CoefficientRecord& record);

// Throws Error(kDecode) where the record's own CRC-32C is not that of its bytes. It has a header.
void check_record_crc(Bytes bytes);

// The opposite of read_record(): `record` without views, the segments' lengths and bytes, and the
// rest.
std::vector<uint8_t> write_record(const CoefficientRecord& record,
                                  const std::vector<uint16_t>& lengths, Bytes segments, Bytes rest);

}  // namespace fastload
