// Coefficient records. The first byte chooses the way:
// - JPEG: where a file can be made a record, both instruction sets write the same record, its
//   pixels are JpegDecoder's (of a progressive file libjpeg's), whole and of a region, and the
//   identical file comes back.
// - Record: its sizes, if control says so, and its CRC are put right, so that damage goes deep.
//   Then both give the same pixels or refuse the record, and the same file or none. Of a JPEG a
//   record is made first, and damaged.
// Which two instruction sets control says. Segments are unpacked by all, as the reference does.
//
// Input: 24 control bytes (way, region, instruction sets, four changes of the record's bytes,
// segments unpacked together), then the JPEG or the record.
#include <algorithm>
#include <map>
#include <optional>

#include "../levels.h"
#include "base/crc32c.h"
#include "decode/coefficients/decoder.h"
#include "decode/jpeg/decoder.h"
#include "input.h"
#include "jpeg_input.h"
#include "oracle.h"
#include "transcode/coefficients.h"

namespace {

using namespace fastload;
using namespace fastload::fuzz;
using Buffer = std::vector<uint8_t>;
using Pixels = std::optional<Buffer>;  // nothing: refused

constexpr size_t kControl = 24, kChanges = 4, kTogether = 9;
// A row of 16 segments, or 181 x 181: larger pictures have no other paths, and take their time.
constexpr uint64_t kMostPixels = uint64_t{1} << 15;
enum Way : uint8_t { kRecord = 1, kSmall = 2, kFixSizes = 4, kGray = 8 };
// Offsets of the fields of a record's header (FORMAT.md).
constexpr size_t kSamplingAt = 7, kWidthAt = 8, kHeightAt = 10, kFlagsAt = 12, kTablesAt = 13,
                 kSegmentBytesAt = 52, kRestBytesAt = 56, kCrcAt = 60;

const std::vector<SimdLevel>& levels() {
  static const std::vector<SimdLevel> all = test::machine_levels();
  return all;
}

struct Level {
  explicit Level(SimdLevel level) { set_simd_level(simd_level_name(level)); }
  ~Level() { set_simd_level(simd_level_name(best)); }
  SimdLevel best = simd_level();
};

// What `call` gives; nothing where it refuses as it may.
template <class Call>
Pixels unless_refused(Call call) {
  try {
    return call();
  } catch (const Error& error) {
    FUZZ_CHECK(error.kind() == ErrorKind::kDecode || error.kind() == ErrorKind::kLimit);
    return std::nullopt;
  }
}

const DecodeLimits& small() {
  static const DecodeLimits all = [] {
    DecodeLimits some = limits();
    some.max_pixels = kMostPixels;
    return some;
  }();
  return all;
}

Pixels make_record(Bytes file, CoefficientForm form, SimdLevel level) {
  const Level chosen(level);
  return unless_refused([&] { return to_coefficients(file, form, small()); });
}

Pixels make_jpeg_again(Bytes record, SimdLevel level) {
  const Level chosen(level);
  return unless_refused([&] { return to_jpeg(record, small()); });
}

// A thread's decoder keeps its memory, and what earlier pictures left there.
template <class Decoder>
Decoder& decoder_of(SimdLevel level) {
  static std::map<SimdLevel, Decoder> all;
  return all.try_emplace(level, level).first->second;
}

Pixels record_pixels(Bytes record, SimdLevel level, Rect roi, bool gray) {
  return unless_refused([&] {
    auto& decoder = decoder_of<CoefficientDecoder>(level);
    decoder.open(record, small());
    Collector sink(roi, gray ? 1 : 3);
    decoder.decode(roi, sink, gray);
    FUZZ_CHECK(sink.whole());
    return sink.pixels();
  });
}

// Of the whole file; nothing where another decoder takes it.
Pixels jpeg_pixels(Bytes file, SimdLevel level, Rect roi, bool gray) {
  auto& decoder = decoder_of<JpegDecoder>(level);
  if (!decoder.open(file, small())) return std::nullopt;
  Collector sink(roi, gray ? 1 : 3);
  decoder.decode(roi, sink, {}, gray);  // of a file that became a record this refuses nothing
  FUZZ_CHECK(sink.whole());
  return sink.pixels();
}

struct Control {
  explicit Control(Bytes bytes) : in(bytes), way(in.u8()), roi(in.take(8)) {
    levels = take_levels(in);
    for (auto& change : changes) change = {static_cast<size_t>(in.u16()), in.u8()};
    together = 1 + in.u8() % kTogether;
  }
  [[nodiscard]] Rect region(int width, int height) const {
    Input numbers(roi);
    return take_roi(numbers, width, height);
  }
  [[nodiscard]] CoefficientForm form() const {
    return (way & kSmall) != 0 ? CoefficientForm::kSmall : CoefficientForm::kFast;
  }

  Input in;
  uint8_t way;
  Bytes roi;
  std::pair<SimdLevel, SimdLevel> levels;
  struct {
    size_t at;
    uint8_t mask;
  } changes[kChanges];
  size_t together;
};

struct Pictures {
  Pixels whole;  // in colour
  Pixels part;   // the region, gray if control says so
};

// At both levels alike.
Pictures check_levels(Bytes record, const JpegHeader& header, const Control& control) {
  const auto [one, other] = control.levels;
  const Rect all{0, 0, header.width, header.height};
  const Rect region = control.region(header.width, header.height);
  const bool gray = (control.way & kGray) != 0;
  Pictures found{record_pixels(record, one, all, false), record_pixels(record, one, region, gray)};
  const auto& [whole, part] = found;
  if (gray && header.component_count > 1) {
    FUZZ_CHECK(!part);
  } else if (whole) {
    FUZZ_CHECK(part && (gray || is_crop(*part, region, *whole, header.width)));
  }
  FUZZ_CHECK(record_pixels(record, other, all, false) == whole);
  FUZZ_CHECK(record_pixels(record, other, region, gray) == part);
  return found;
}

void check_jpeg(Bytes file, const Control& control) {
  const auto [one, other] = control.levels;
  const Pixels record = make_record(file, control.form(), one);
  FUZZ_CHECK(make_record(file, control.form(), other) == record);
  if (!record) return;
  CoefficientRecord parts;
  read_record(*record, small(), parts);
  const JpegHeader& header = parts.header;
  const auto [whole, part] = check_levels(*record, header, control);
  FUZZ_CHECK(whole);
  const Pixels again = make_jpeg_again(*record, other);
  FUZZ_CHECK(again && std::equal(again->begin(), again->end(), file.begin(), file.end()));
  const Rect all{0, 0, header.width, header.height};
  const Pixels wanted = jpeg_pixels(file, one, all, false);
  FUZZ_CHECK(wanted ? wanted == whole : parts.is_progressive);
  if (wanted && part) {
    const Rect region = control.region(header.width, header.height);
    FUZZ_CHECK(jpeg_pixels(file, other, region, (control.way & kGray) != 0) == part);
  }
  if (!parts.is_progressive) return;
  const OraclePicture oracle = oracle_decode(file);
  FUZZ_CHECK(!oracle.clean || oracle.rgb == *whole);
}

size_t little(const Buffer& record, size_t at, size_t bytes) {
  size_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= size_t{record[at + i]} << (8 * i);
  return value;
}

void put32(Buffer& record, size_t at, size_t value) {
  for (size_t i = 0; i < 4; ++i) record[at + i] = static_cast<uint8_t>(value >> (8 * i));
}

// The bytes of the segments are the sum of their lengths, and the rest is what follows them.
void fix_sizes(Buffer& record) {
  const size_t rows_of = 8 * std::max<size_t>(record[kSamplingAt] >> 4, 1);
  const size_t segments = (little(record, kWidthAt, 2) + 63) / 64 *
                          ((little(record, kHeightAt, 2) + rows_of - 1) / rows_of);
  const size_t step_bytes = (record[kFlagsAt] & 2) != 0 ? 2 : 1;
  size_t at = kRecordHeaderBytes + 64 * step_bytes * record[kTablesAt];
  size_t end = at + 2 * segments;
  if (end > record.size()) return;
  const size_t begin = end;
  for (; at < begin; at += 2) end += little(record, at, 2);
  if (end + kSegmentSlack > record.size()) return;
  put32(record, kSegmentBytesAt, end - begin);
  const bool keeps = end + kSegmentSlack == record.size();
  if (!keeps || little(record, kRestBytesAt, 4) > kSegmentSlack) {
    put32(record, kRestBytesAt, record.size() - end);
  }
}

void damage(Buffer& record, const Control& control) {
  for (const auto& change : control.changes) record[change.at % record.size()] ^= change.mask;
}

void put_right(Buffer& record, bool sizes) {
  if (record.size() < kRecordHeaderBytes) return;
  if (sizes) fix_sizes(record);
  const Bytes all = record;
  put32(record, kCrcAt, crc32c(all.subspan(kCrcAt + 4), crc32c(all.first(kCrcAt))));
}

// `count` segments from the same sources at every level as in the reference. Whether none of them
// is damaged.
bool check_unpacking(const SegmentCoding& coding, const SegmentSource* sources, size_t count) {
  static std::vector<SegmentBlocks> wanted(kTogether), found(kTogether);
  std::memset(static_cast<void*>(wanted.data()), 0x11, count * sizeof(SegmentBlocks));
  const bool ok = unpack_segments_scalar(coding, sources, count, wanted.data());
  for (const SimdLevel level : levels()) {
    // What a kernel leaves as it was shows.
    std::memset(static_cast<void*>(found.data()), 0xEE, count * sizeof(SegmentBlocks));
    FUZZ_CHECK(segment_kernels(level).unpack(coding, sources, count, found.data()) == ok);
    for (size_t i = 0; ok && i < count; ++i) {
      for (size_t block = 0; block < sources[i].shape->block_count; ++block) {
        std::array<int16_t, 64> one, other;
        expand_block(wanted[i], block, one.data());
        expand_block(found[i], block, other.data());
        FUZZ_CHECK(one == other);
      }
    }
  }
  return ok;
}

// Of all segments, `together` at a time.
bool check_segments(const CoefficientRecord& record, size_t together) {
  const SegmentShape whole = segment_shape(record.header, record.segment_mcus);
  const SegmentShape last =
      segment_shape(record.header, record.mcus_of(record.segments_per_row - 1));
  std::array<SegmentSource, kTogether> sources;
  const uint8_t* at = record.segments.data();
  bool all_ok = true;
  for (size_t begin = 0, end; begin < record.segment_count(); begin = end) {
    end = std::min(begin + together, record.segment_count());
    // AddressSanitizer sees one byte too much behind the slack.
    const size_t size = record.bytes_of(begin, end);
    const Buffer bytes(at, at + size + kSegmentSlack);
    at += size;
    const uint8_t* from = bytes.data();
    for (size_t i = begin; i < end; ++i) {
      const bool is_last = (i + 1) % static_cast<size_t>(record.segments_per_row) == 0;
      sources[i - begin] = {from, record.length(i), is_last ? &last : &whole};
      from += record.length(i);
    }
    all_ok = check_unpacking(record.coding, sources.data(), end - begin) && all_ok;
  }
  return all_ok;
}

void check_record(Bytes record, const Control& control) {
  const auto [one, other] = control.levels;
  const Pixels file = make_jpeg_again(record, one);
  CoefficientRecord parts;
  const Pixels opened = unless_refused([&] {
    read_record(record, small(), parts);
    return Buffer{};
  });
  if (!opened) {
    FUZZ_CHECK(!file && !record_pixels(record, one, {0, 0, 1, 1}, false));
    return;
  }
  FUZZ_CHECK(make_jpeg_again(record, other) == file);
  const bool ok = check_segments(parts, control.together);
  FUZZ_CHECK(ok || !file);
  FUZZ_CHECK(ok == check_levels(record, parts.header, control).whole.has_value());
}

}  // namespace

namespace fastload::fuzz {

size_t jpeg_begin(Bytes input) { return std::min(input.size(), kControl); }

}  // namespace fastload::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size <= kControl) return 0;
  const Control control(Bytes(data, kControl));
  const Bytes file = Bytes(data, size).subspan(kControl);
  if ((control.way & kRecord) == 0) {
    check_jpeg(file, control);
    return 0;
  }
  Buffer record(file.begin(), file.end());
  if (file.size() > 2 && file[0] == 0xFF && file[1] == 0xD8) {
    Pixels made = make_record(file, control.form(), control.levels.first);
    if (!made) return 0;
    record = std::move(*made);
    damage(record, control);
  }
  put_right(record, (control.way & kFixSizes) != 0);
  record.shrink_to_fit();  // AddressSanitizer sees one byte too much
  check_record(record, control);
  return 0;
}
