// A mutator that knows what a coefficient record is: it takes one apart, changes segments, coding,
// tables, values, sizes or the rest, and puts it together with right sizes and CRC. What is no
// record is left to the mutator of JPEGs.
#include <algorithm>
#include <array>
#include <optional>

#include "../plain_segment.h"
#include "base/error.h"
#include "decode/coefficients/record.h"
#include "input.h"
#include "jpeg_input.h"
#include "jpeg_maker.h"
#include "transcode/coefficients.h"
#include "transcode/rest.h"
#include "transcode/segment_writer.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using namespace fastload;
using namespace fastload::fuzz;
using Buffer = std::vector<uint8_t>;

// Of the record's header (FORMAT.md).
constexpr size_t kFormAt = 5, kWidthAt = 8, kHeightAt = 10, kFlagsAt = 12, kTableOfAt = 14,
                 kRiceAt = 15, kMaskLengthsAt = 34, kZeroAt = 50, kSegmentBytesAt = 52,
                 kRestBytesAt = 56;
constexpr size_t kMostLength = 65535;

struct Parts {
  CoefficientRecord record;  // without its views
  Buffer head;               // the header and the tables
  std::vector<Buffer> segments;
  Buffer rest;
};

size_t any(Random& random, size_t end) { return random() % end; }
uint8_t any_byte(Random& random) { return static_cast<uint8_t>(random() >> 8); }

std::optional<Parts> take_apart(Bytes bytes) {
  Parts parts;
  CoefficientRecord& record = parts.record;
  try {
    read_record(bytes, limits(), record);
  } catch (const Error&) {
    return std::nullopt;
  }
  parts.head.assign(bytes.data(), record.lengths.data());
  const uint8_t* at = record.segments.data();
  for (size_t i = 0; i < record.segment_count(); at += record.length(i), ++i) {
    parts.segments.emplace_back(at, at + record.length(i));
  }
  parts.rest.assign(record.rest.begin(), record.rest.end());
  return parts;
}

void put(Buffer& bytes, size_t at, size_t value, size_t count) {
  for (size_t i = 0; i < count; ++i) bytes[at + i] = static_cast<uint8_t>(value >> (8 * i));
}

// The target puts the CRC right.
Buffer put_together(const Parts& parts) {
  Buffer bytes = parts.head;
  size_t sum = 0;
  for (const Buffer& segment : parts.segments) {
    bytes.resize(bytes.size() + 2);
    put(bytes, bytes.size() - 2, segment.size(), 2);
    sum += segment.size();
  }
  for (const Buffer& segment : parts.segments) {
    bytes.insert(bytes.end(), segment.begin(), segment.end());
  }
  bytes.insert(bytes.end(), parts.rest.begin(), parts.rest.end());
  if (parts.rest.size() < kSegmentSlack) {
    bytes.resize(bytes.size() + kSegmentSlack - parts.rest.size());
  }
  put(bytes, kSegmentBytesAt, sum, 4);
  put(bytes, kRestBytesAt, parts.rest.size(), 4);
  return bytes;
}

void change_bytes(Buffer& bytes, Random& random) {
  if (bytes.empty()) bytes.push_back(0);
  const size_t at = any(random, bytes.size());
  const auto place = bytes.begin() + static_cast<ptrdiff_t>(at);
  const size_t run = std::min<size_t>(bytes.size() - at, any(random, 8) + 1);
  switch (pick(random, 0, 8)) {
    case 0:
      bytes.insert(place, any_byte(random));
      return;
    case 1:
      bytes.erase(place, place + static_cast<ptrdiff_t>(run));
      return;
    case 2:
      bytes.resize(at);
      return;
    case 3:
      bytes.resize(std::min(bytes.size() + any(random, 300), kMostLength), any_byte(random));
      return;
    case 4:
      std::fill_n(place, run, pick(random, 0, 1) == 0 ? uint8_t{0xFF} : uint8_t{0});
      return;
    case 5:
      bytes[at] = any_byte(random);
      return;
    default:  // a bit of a value rather than of a mask: the segment stays readable
      bytes[at] ^= static_cast<uint8_t>(1u << pick(random, 0, 7));
  }
}

SegmentShape shape_of(const CoefficientRecord& record, size_t segment) {
  const auto column = static_cast<int>(segment % static_cast<size_t>(record.segments_per_row));
  return segment_shape(record.header, record.mcus_of(column));
}

// Other values, masks and DC, coded as they are to be.
void change_values(Parts& parts, Random& random) {
  static constexpr std::array kMost{1, 7, 127, 130, 1023, 1024, 2048, kMostMagnitude};
  const size_t number = any(random, parts.segments.size());
  Buffer& segment = parts.segments[number];
  const SegmentShape shape = shape_of(parts.record, number);
  Buffer bytes = segment;
  bytes.resize(bytes.size() + kSegmentSlack);
  const SegmentSource source{bytes.data(), segment.size(), &shape};
  static std::vector<SegmentBlocks> unpacked(1);
  const SegmentCoding& coding = parts.record.coding;
  if (!unpack_segments_scalar(coding, &source, 1, unpacked.data())) return;
  std::vector<std::array<int16_t, 64>> blocks(shape.block_count);
  std::vector<const int16_t*> pointers;
  for (size_t i = 0; i < blocks.size(); ++i) {
    expand_block(unpacked[0], i, blocks[i].data());
    blocks[i][0] = std::clamp<int16_t>(blocks[i][0], kLeastDc, kMostDc);
    pointers.push_back(blocks[i].data());
  }
  for (int i = pick(random, 1, 20); i > 0; --i) {
    auto& block = blocks[any(random, blocks.size())];
    const size_t k = pick(random, 0, 2) == 0 ? 0 : any(random, 64);
    const int most = kMost[any(random, kMost.size())];
    const int value = pick(random, 0, 1) == 0 ? most : pick(random, -most, most);
    block[k] = static_cast<int16_t>(k > 0 ? value : std::clamp(value, kLeastDc, kMostDc));
  }
  Buffer packed;
  try {
    test::pack_segment_plainly(coding, shape, pointers.data(), packed);
  } catch (const Error&) {  // a mask longer than every class
    return;
  }
  if (packed.size() <= kMostLength) segment = std::move(packed);
}

void change_coding(Buffer& head, Random& random) {
  switch (pick(random, 0, 4)) {
    case 0:
      head[kRiceAt] = static_cast<uint8_t>(pick(random, 0, 3) | pick(random, 0, 3) << 4);
      return;
    case 1:
      head[kRiceAt + 1 + any(random, 18)] = static_cast<uint8_t>(pick(random, 0, 63));
      return;
    case 2:
      head[kMaskLengthsAt + any(random, 16)] = static_cast<uint8_t>(pick(random, 0, 63));
      return;
    case 3:
      head[kFormAt] ^= 3;
      for (size_t at = kMaskLengthsAt; at < kZeroAt; ++at) {
        head[at] = head[kFormAt] == 1 ? static_cast<uint8_t>(pick(random, 0, 63)) : 0;
      }
      return;
    default:
      head[kFlagsAt + any(random, 3)] ^= static_cast<uint8_t>(1u << pick(random, 0, 5));
      head[kTableOfAt] &= 0x3F;
  }
}

// Up to the most pixels that the target takes, and a row that is unpacked in two rounds. As many
// segments as the new size has: those that are left, or some of them again.
void change_size(Parts& parts, Random& random) {
  const JpegHeader& header = parts.record.header;
  const bool wide = pick(random, 0, 1) == 0;
  const int other = wide ? header.height : header.width;
  const int most = std::clamp((1 << 15) / other, 1, 700);
  put(parts.head, wide ? kWidthAt : kHeightAt,
      static_cast<size_t>(pick(random, 1, pick(random, 1, most))), 2);
  const auto number = [&](size_t place) {
    return parts.head[place] | size_t{parts.head[place + 1]} << 8;
  };
  const auto rows = static_cast<size_t>(header.mcu_height);
  const size_t count = (number(kWidthAt) + 63) / 64 * ((number(kHeightAt) + rows - 1) / rows);
  const size_t had = parts.segments.size();
  parts.segments.resize(count);
  for (size_t i = had; i < count; ++i) parts.segments[i] = parts.segments[any(random, had)];
}

void change_rest(Buffer& rest, Random& random) {
  JpegRest unpacked;
  try {
    unpacked = unpack_rest(rest);
  } catch (const Error&) {
    change_bytes(rest, random);
    return;
  }
  Buffer& frame = unpacked.frame;
  if (!frame.empty() && pick(random, 0, 3) != 0) {
    frame[any(random, frame.size())] = any_byte(random);
  } else {
    change_bytes(frame, random);
  }
  rest.assign(5, 0);  // not packed
  rest[0] = unpacked.pads_with_ones ? 1 : 0;
  put(rest, 1, frame.size(), 4);
  rest.insert(rest.end(), frame.begin(), frame.end());
}

void change_record(Parts& parts, Random& random) {
  const size_t segment = any(random, parts.segments.size());
  const int what = pick(random, 0, 15);
  if (what < 5) {
    change_bytes(parts.segments[segment], random);
  } else if (what < 6) {
    parts.segments[segment] = parts.segments[any(random, parts.segments.size())];
  } else if (what < 10) {
    change_values(parts, random);
  } else if (what < 12) {
    change_coding(parts.head, random);
  } else if (what < 13) {
    const size_t tables = parts.head.size() - kRecordHeaderBytes;
    parts.head[kRecordHeaderBytes + any(random, tables)] = any_byte(random);
  } else if (what < 14) {
    change_size(parts, random);
  } else {
    change_rest(parts.rest, random);
  }
}

Buffer renewed(Random& random) {
  for (int tries = 0; tries < 4; ++tries) {
    try {
      const auto form = pick(random, 0, 1) == 0 ? CoefficientForm::kFast : CoefficientForm::kSmall;
      return to_coefficients(make_jpeg(random), form, limits());
    } catch (const Error&) {
    }
  }
  return {};
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  Random random(seed + 1);
  const size_t begin = jpeg_begin({data, size});
  Buffer record(data + begin, data + size);
  const bool is_record = begins_coefficients(record);
  // Making one takes longer than changing and trying it.
  const bool renew = pick(random, 0, is_record ? 29 : 9) == 0;
  if (!renew && !is_record) return mutate_jpeg_input(data, size, max_size, seed);
  const int what = pick(random, 0, 9);
  if (!renew && what < 1) return LLVMFuzzerMutate(data, size, max_size);
  if (begin > 0) {
    if (!renew && what < 2) LLVMFuzzerMutate(data, begin, begin);
    data[0] |= 1;  // the way of records
  }
  if (renew) record = renewed(random);
  for (int i = pick(random, renew ? -2 : 1, 3); i > 0; --i) {
    auto parts = take_apart(record);
    if (!parts) break;
    change_record(*parts, random);
    record = put_together(*parts);
  }
  if (record.empty() || record.size() > max_size - begin) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  std::copy(record.begin(), record.end(), data + begin);
  return begin + record.size();
}
