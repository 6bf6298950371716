#include "decode/jpeg/entry_points.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/error.h"
#include "decode/jpeg/scan.h"

namespace fastload {
namespace {

constexpr int kPredictorBits = 11;

struct Layout {
  size_t bytes;
  int delta_bits;
  int components;
};

Layout layout_of(const JpegHeader& header) {
  return header.component_count == 1 ? Layout{5, 26, 1} : Layout{7, 20, 3};
}

int sign_extend(uint64_t value) {
  const auto bits = static_cast<int>(value & ((1u << kPredictorBits) - 1));
  return bits - ((bits >> (kPredictorBits - 1)) << kPredictorBits);
}

// The little-endian integer of the first `size` bytes; reads 8 where there are as many.
uint64_t load_entry(Bytes bytes, size_t size) {
  uint64_t word = 0;
  if (std::endian::native == std::endian::little && bytes.size() >= sizeof word) {
    std::memcpy(&word, bytes.data(), sizeof word);
    return word & (~uint64_t{0} >> (64 - 8 * size));
  }
  for (size_t i = 0; i < size; ++i) word |= uint64_t{bytes[i]} << (8 * i);
  return word;
}

[[noreturn]] void bad_entries(const std::string& what) {
  throw Error(ErrorKind::kFormat,
              "JPEG entry points: " + what + ". Make them again from this file.");
}

std::vector<uint8_t> build(Bytes file, const JpegHeader& header, int spacing) {
  JpegScan scan;
  scan.open(file, header, {}, simd_level(), header.mcu_rows);
  const int length = segment_mcus(header, spacing);
  std::vector<uint8_t> packed;
  packed.reserve(entry_count(header, spacing) * entry_size(header));
  size_t previous = header.scan_begin;
  for (int row = 0; row < header.mcu_rows; ++row) {
    for (int column = 0; column < header.mcus_per_row; column += length) {
      const EntryPoint point = scan.entry_at(row * header.mcus_per_row + column);
      if (!pack_entry(header, point, previous, packed)) return {};
      previous = point.offset;
    }
  }
  scan.skip_to(header.mcu_rows * header.mcus_per_row);
  return packed;
}

}  // namespace

size_t entry_size(const JpegHeader& header) { return layout_of(header).bytes; }

int segment_mcus(const JpegHeader& header, int spacing) {
  if (spacing == EntryPoints::kRow) return header.mcus_per_row;
  const int mcus = (spacing + header.mcu_width - 1) / header.mcu_width;
  return std::clamp(mcus, 1, header.mcus_per_row);
}

int segments_per_row(const JpegHeader& header, int spacing) {
  const int length = segment_mcus(header, spacing);
  return (header.mcus_per_row + length - 1) / length;
}

size_t entry_count(const JpegHeader& header, int spacing) {
  return static_cast<size_t>(segments_per_row(header, spacing)) *
         static_cast<size_t>(header.mcu_rows);
}

void unpack_entries(const JpegHeader& header, const EntryPoints& entries, size_t file_size,
                    int rows, std::vector<EntryPoint>& points) {
  const Layout layout = layout_of(header);
  const size_t count = entry_count(header, entries.spacing);
  if (entries.packed.size() != count * layout.bytes) {
    bad_entries("expected " + std::to_string(count) + " of " + std::to_string(layout.bytes) +
                " bytes. Found: " + std::to_string(entries.packed.size()) + " bytes");
  }
  // Each later entry is proved by the segment before it; the first one by its definition.
  const Bytes first = entries.packed.first(layout.bytes);
  if (std::any_of(first.begin(), first.end(), [](uint8_t byte) { return byte != 0; })) {
    bad_entries("the first one must be all zeros");
  }
  const size_t needed =
      static_cast<size_t>(segments_per_row(header, entries.spacing)) * static_cast<size_t>(rows);
  points.resize(std::min(count, needed + 1));
  size_t offset = header.scan_begin;
  for (size_t i = 0; i < points.size(); ++i) {
    uint64_t word = load_entry(entries.packed.subspan(i * layout.bytes), layout.bytes);
    EntryPoint& point = points[i];
    offset += (word >> 3) & ((uint64_t{1} << layout.delta_bits) - 1);
    point.offset = offset;
    point.bit = static_cast<int>(word & 7);
    word >>= 3 + layout.delta_bits;
    for (int& predictor : point.predictors) {
      predictor = sign_extend(word);
      word >>= kPredictorBits;
    }
  }
  // Offsets only grow, so the last one bounds all.
  if (offset >= file_size) bad_entries("an offset lies behind the file's end");
}

std::optional<ByteRange> bytes_of_rows(const JpegHeader& header, const EntryPoints& entries,
                                       size_t file_size, McuRows rows) {
  const Layout layout = layout_of(header);
  const size_t count = entry_count(header, entries.spacing);
  if (entries.packed.size() != count * layout.bytes) return {};
  const auto a_row = static_cast<size_t>(segments_per_row(header, entries.spacing));
  const size_t first = a_row * static_cast<size_t>(rows.begin);
  const size_t last = a_row * static_cast<size_t>(rows.end);  // the first one not decoded
  ByteRange range{0, file_size};
  size_t offset = header.scan_begin;
  for (size_t i = 0; i < std::min(count, last + 1); ++i) {
    const uint64_t word = load_entry(entries.packed.subspan(i * layout.bytes), layout.bytes);
    offset += (word >> 3) & ((uint64_t{1} << layout.delta_bits) - 1);
    if (i == first) range.begin = offset - 1;  // it is looked at, too
    if (i == last) range.end = offset + 2;     // the byte that both share, and a stuffed 00
  }
  if (offset >= file_size || range.begin >= file_size) return {};
  range.end = std::min(range.end, file_size);
  return range;
}

bool pack_entry(const JpegHeader& header, const EntryPoint& point, size_t previous_offset,
                std::vector<uint8_t>& packed) {
  const Layout layout = layout_of(header);
  const size_t delta = point.offset - previous_offset;
  if (delta >> layout.delta_bits != 0) return false;
  uint64_t word = static_cast<uint64_t>(point.bit) | static_cast<uint64_t>(delta) << 3;
  int shift = 3 + layout.delta_bits;
  for (int i = 0; i < layout.components; ++i, shift += kPredictorBits) {
    const int predictor = point.predictors[static_cast<size_t>(i)];
    const auto bits = static_cast<uint64_t>(predictor) & ((1u << kPredictorBits) - 1);
    if (sign_extend(bits) != predictor) return false;
    word |= bits << shift;
  }
  for (size_t i = 0; i < layout.bytes; ++i) packed.push_back(static_cast<uint8_t>(word >> (8 * i)));
  return true;
}

std::vector<uint8_t> build_entries(Bytes file, int spacing, const DecodeLimits& limits) {
  if (spacing < 0 || spacing > 65535) {
    throw Error(ErrorKind::kValue, "spacing must be 0 (rows of MCUs) or 1..65535 pixels. Found: " +
                                       std::to_string(spacing) + ".");
  }
  try {
    JpegHeader header;
    if (!parse_jpeg(file, limits, header) || header.restart_interval > 0) return {};
    return build(file, header, spacing);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kDecode || error.kind() == ErrorKind::kLimit) return {};
    throw;
  }
}

}  // namespace fastload
