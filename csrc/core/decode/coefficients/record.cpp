#include "decode/coefficients/record.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include "base/crc32c.h"
#include "base/error.h"
#include "decode/codecs/header_bytes.h"

namespace fastload {
namespace {

constexpr std::array<uint8_t, 4> kMagic{0x8A, 'F', 'L', 'C'};
// Offsets of the header's fields.
constexpr size_t kVersionAt = 4, kFormAt = 5, kComponentsAt = 6, kSamplingAt = 7, kWidthAt = 8,
                 kHeightAt = 10, kFlagsAt = 12, kTablesAt = 13, kTableOfAt = 14, kRiceAt = 15,
                 kLastLowAt = 16, kMaskLengthsAt = 34, kZeroAt = 50, kSegmentBytesAt = 52,
                 kRestBytesAt = 56, kCrcAt = 60;
constexpr uint8_t kProgressiveFlag = 1, kWideStepsFlag = 2;
constexpr int kMaxTables = 3;

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorKind::kDecode, "coefficient record: " + what);
}

std::string number(uint64_t value) { return std::to_string(value); }

void expect(uint64_t found, uint64_t least, uint64_t most, const char* what) {
  if (found >= least && found <= most) return;
  fail(std::string(what) + " is " + number(found) + ", not " + number(least) +
       (least == most ? "" : ".." + number(most)));
}

void put16(uint8_t* to, size_t value) {
  to[0] = static_cast<uint8_t>(value);
  to[1] = static_cast<uint8_t>(value >> 8);
}
void put32(uint8_t* to, size_t value) {
  put16(to, value);
  put16(to + 2, value >> 16);
}

void check_head(Bytes bytes) {
  if (!begins_coefficients(bytes)) fail("it does not begin with 8a 46 4c 43");
  if (bytes.size() < kRecordHeaderBytes) {
    fail("it ends early: " + number(bytes.size()) + " bytes, the header has " +
         number(kRecordHeaderBytes));
  }
  if (bytes[kVersionAt] != kRecordVersion) {
    fail("version " + number(bytes[kVersionAt]) + "; this fastload reads version " +
         number(kRecordVersion) + ". Update fastload");
  }
}

void read_components(Bytes bytes, JpegHeader& header) {
  const uint8_t components = bytes[kComponentsAt], sampling = bytes[kSamplingAt];
  if (components != 1 && components != 3) {
    fail("it has " + number(components) + " components, not 1 or 3");
  }
  const uint8_t h = sampling & 15, v = sampling >> 4;
  if (h < 1 || h > 2 || v < 1 || v > 2 || (components == 1 && sampling != 0x11)) {
    fail("luma sampling of " + number(h) + "x" + number(v));
  }
  header.component_count = components;
  header.components = {};
  for (size_t c = 0; c < components; ++c) {
    header.components[c].quant = bytes[kTableOfAt] >> (2 * c) & 3;
    expect(header.components[c].quant, 0, bytes[kTablesAt] - 1u, "a component's table");
  }
  if (bytes[kTableOfAt] >> (2 * components) != 0) fail("a table of no component");
  header.components[0].h = h;
  header.components[0].v = v;
}

void read_coding(Bytes bytes, CoefficientRecord& record) {
  expect(bytes[kFormAt], 1, 2, "the form");
  SegmentCoding& coding = record.coding;
  coding.form = static_cast<CoefficientForm>(bytes[kFormAt]);
  coding.rice = {static_cast<uint8_t>(bytes[kRiceAt] & 15),
                 static_cast<uint8_t>(bytes[kRiceAt] >> 4)};
  for (const uint8_t rice : coding.rice) expect(rice, 0, kMaxRice, "a Rice parameter");
  for (size_t kind = 0; kind < 2; ++kind) {
    for (size_t count = 0; count <= kMaskBytes; ++count) {
      const uint8_t last = bytes[kLastLowAt + kind * (kMaskBytes + 1) + count];
      expect(last, 0, 63, "a last position of list A");
      record.last_low[kind][count] = last;
      coding.low[kind][count] = ~uint64_t{0} >> (63 - last) & ~uint64_t{1};
    }
  }
  const uint64_t longest = coding.form == CoefficientForm::kFast ? 63 : 0;
  for (size_t i = 0; i < kMaskClasses; ++i) {
    expect(bytes[kMaskLengthsAt + i], 0, longest, "a mask's length");
    coding.mask_lengths[i] = bytes[kMaskLengthsAt + i];
  }
}

void read_tables(Bytes bytes, size_t step_bytes, JpegHeader& header) {
  header.quant = {};
  const uint8_t* at = bytes.data() + kRecordHeaderBytes;
  for (size_t table = 0; table < bytes[kTablesAt]; ++table) {
    header.quant[table].present = true;
    for (uint16_t& step : header.quant[table].steps) {
      step = static_cast<uint16_t>(step_bytes == 1 ? *at : little16(at));
      at += step_bytes;
    }
  }
}

// Every length in turn: they are unaligned.
size_t sum16(const uint8_t* from, size_t count) {
  size_t sum = 0;
  for (size_t i = 0; i < count; ++i) {
    uint16_t length;
    std::memcpy(&length, from + 2 * i, 2);
    sum += length;
  }
  return sum;
}

}  // namespace

bool begins_coefficients(Bytes bytes) {
  return bytes.size() >= kMagic.size() && std::equal(kMagic.begin(), kMagic.end(), bytes.begin());
}

ImageInfo probe_coefficients(Bytes bytes) {
  check_head(bytes);
  const uint32_t width = little16(&bytes[kWidthAt]), height = little16(&bytes[kHeightAt]);
  if (width == 0 || height == 0) fail("a picture of " + number(width) + "x" + number(height));
  JpegHeader header;
  read_components(bytes, header);
  ImageInfo info;
  info.codec = Codec::kCoefficients;
  info.width = width;
  info.height = height;
  info.channels = bytes[kComponentsAt];
  return info;
}

size_t CoefficientRecord::bytes_of(size_t begin, size_t end) const {
  return sum16(lengths.data() + 2 * begin, end - begin);
}

void read_record(Bytes bytes, const DecodeLimits& limits, CoefficientRecord& record) {
  const ImageInfo info = probe_coefficients(bytes);
  if (info.width > limits.max_side || info.height > limits.max_side ||
      uint64_t{info.width} * info.height > limits.max_pixels) {
    throw Error(ErrorKind::kLimit,
                "coefficient record of " + number(info.width) + "x" + number(info.height) +
                    " pixels: at most " + number(limits.max_pixels) +
                    " (max_pixels), a side at most " + number(limits.max_side) + " (max_side)");
  }
  expect(bytes[kTablesAt], 1, kMaxTables, "the number of quantisation tables");
  expect(bytes[kFlagsAt], 0, kProgressiveFlag | kWideStepsFlag, "the flags' byte");
  expect(little16(&bytes[kZeroAt]), 0, 0, "a reserved field");
  JpegHeader& header = record.header;
  header.width = static_cast<int>(info.width);
  header.height = static_cast<int>(info.height);
  read_components(bytes, header);
  lay_out_mcus(header);
  read_coding(bytes, record);
  record.is_progressive = (bytes[kFlagsAt] & kProgressiveFlag) != 0;
  record.segment_mcus = coefficient_segment_mcus(header);
  record.segments_per_row = (header.mcus_per_row + record.segment_mcus - 1) / record.segment_mcus;

  const size_t step_bytes = (bytes[kFlagsAt] & kWideStepsFlag) != 0 ? 2 : 1;
  const size_t lengths_at = kRecordHeaderBytes + 64 * step_bytes * bytes[kTablesAt];
  const size_t segments_at = lengths_at + 2 * record.segment_count();
  const size_t segment_bytes = little32(&bytes[kSegmentBytesAt]);
  const size_t rest_bytes = little32(&bytes[kRestBytesAt]);
  const size_t size = segments_at + segment_bytes + std::max(rest_bytes, kSegmentSlack);
  if (bytes.size() != size) {
    fail("it has " + number(bytes.size()) + " bytes, its header says " + number(size));
  }
  read_tables(bytes, step_bytes, header);
  record.lengths = bytes.subspan(lengths_at, segments_at - lengths_at);
  record.segments = bytes.subspan(segments_at, segment_bytes);
  record.rest = bytes.subspan(segments_at + segment_bytes, rest_bytes);
  const size_t sum = record.bytes_of(0, record.segment_count());
  if (sum != segment_bytes) {
    fail("its segments have " + number(sum) + " bytes, its header says " + number(segment_bytes));
  }
}

void check_record_crc(Bytes bytes) {
  check_head(bytes);
  const uint32_t crc = crc32c(bytes.subspan(kCrcAt + 4), crc32c(bytes.first(kCrcAt)));
  if (crc != little32(&bytes[kCrcAt])) fail("its CRC-32C is not that of its bytes");
  const size_t used = little32(&bytes[kRestBytesAt]);
  if (used >= kSegmentSlack || bytes.size() < kSegmentSlack) return;
  const Bytes spare = bytes.last(kSegmentSlack - used);
  if (std::any_of(spare.begin(), spare.end(), [](uint8_t byte) { return byte != 0; })) {
    fail("the bytes behind its end are not zeros");
  }
}

std::vector<uint8_t> write_record(const CoefficientRecord& record,
                                  const std::vector<uint16_t>& lengths, Bytes segments,
                                  Bytes rest) {
  const JpegHeader& header = record.header;
  // Tables in the order of the components that use them first.
  std::array<uint8_t, 4> place{};
  std::vector<const QuantTable*> tables;
  unsigned table_of = 0;
  bool has_wide_steps = false;
  for (size_t c = 0; c < static_cast<size_t>(header.component_count); ++c) {
    const uint8_t number_of = header.components[c].quant;
    const QuantTable* const table = &header.quant[number_of];
    const auto known = std::find(tables.begin(), tables.end(), table);
    place[number_of] = static_cast<uint8_t>(known - tables.begin());
    if (known == tables.end()) tables.push_back(table);
    table_of |= static_cast<unsigned>(place[number_of]) << (2 * c);
    for (const uint16_t step : table->steps) has_wide_steps |= step > 255;
  }
  const size_t step_bytes = has_wide_steps ? 2 : 1;
  const size_t lengths_at = kRecordHeaderBytes + 64 * step_bytes * tables.size();
  const size_t segments_at = lengths_at + 2 * lengths.size();
  std::vector<uint8_t> bytes(segments_at + segments.size() + std::max(rest.size(), kSegmentSlack));
  std::copy(kMagic.begin(), kMagic.end(), bytes.begin());
  bytes[kVersionAt] = kRecordVersion;
  bytes[kFormAt] = static_cast<uint8_t>(record.coding.form);
  bytes[kComponentsAt] = static_cast<uint8_t>(header.component_count);
  bytes[kSamplingAt] = static_cast<uint8_t>(header.components[0].h | header.components[0].v << 4);
  put16(&bytes[kWidthAt], static_cast<size_t>(header.width));
  put16(&bytes[kHeightAt], static_cast<size_t>(header.height));
  bytes[kFlagsAt] = static_cast<uint8_t>((record.is_progressive ? kProgressiveFlag : 0) |
                                         (has_wide_steps ? kWideStepsFlag : 0));
  bytes[kTablesAt] = static_cast<uint8_t>(tables.size());
  bytes[kTableOfAt] = static_cast<uint8_t>(table_of);
  bytes[kRiceAt] = static_cast<uint8_t>(record.coding.rice[0] | record.coding.rice[1] << 4);
  for (size_t kind = 0; kind < 2; ++kind) {
    std::copy(record.last_low[kind].begin(), record.last_low[kind].end(),
              &bytes[kLastLowAt + kind * (kMaskBytes + 1)]);
  }
  std::copy(record.coding.mask_lengths.begin(), record.coding.mask_lengths.end(),
            &bytes[kMaskLengthsAt]);
  put32(&bytes[kSegmentBytesAt], segments.size());
  put32(&bytes[kRestBytesAt], rest.size());
  uint8_t* at = &bytes[kRecordHeaderBytes];
  for (const QuantTable* table : tables) {
    for (const uint16_t step : table->steps) {
      *at = static_cast<uint8_t>(step);
      if (has_wide_steps) at[1] = static_cast<uint8_t>(step >> 8);
      at += step_bytes;
    }
  }
  for (const uint16_t length : lengths) {
    put16(at, length);
    at += 2;
  }
  std::copy(segments.begin(), segments.end(), at);
  std::copy(rest.begin(), rest.end(), at + segments.size());
  const Bytes all = bytes;
  put32(&bytes[kCrcAt], crc32c(all.subspan(kCrcAt + 4), crc32c(all.first(kCrcAt))));
  return bytes;
}

}  // namespace fastload
