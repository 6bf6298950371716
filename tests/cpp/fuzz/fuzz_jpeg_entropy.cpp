// The own JPEG decoder with entry points of any kind, at two instruction sets. The picture it makes
// is libjpeg's where that one decodes to the end without a warning.
//
// Input: 16 control bytes, the entries' bytes, the JPEG. Control: spacing (2 bytes), what the
// entries' bytes are (see Kind), their number (2), the region (8), the instruction sets (2).
#include <optional>

#include "base/cpu.h"
#include "decode/jpeg/decoder.h"
#include "decode/jpeg/entry_points.h"
#include "input.h"
#include "jpeg_input.h"
#include "oracle.h"

namespace {

using namespace fastload;
using namespace fastload::fuzz;
using Pixels = std::vector<uint8_t>;

constexpr size_t kControl = 16;

enum Kind { kTrue, kRaw, kPatched };

struct Case {
  Bytes file;
  int spacing = 0;
  int kind = 0;
  Pixels entries;
  Rect roi;
  bool exact = false;  // the entries are this file's own
};

// The true entries with a few bytes changed: triplets of position (2 bytes) and XOR mask.
Pixels patched(Pixels entries, Bytes patches) {
  Input in(patches);
  while (!in.rest().empty() && !entries.empty()) {
    const auto at = static_cast<size_t>(in.u16()) % entries.size();
    entries[at] ^= in.u8();
  }
  return entries;
}

// The whole picture or the region; nothing where the decoder refuses.
std::optional<Pixels> decode(JpegDecoder& decoder, Rect roi, const EntryPoints& entries) {
  Collector sink(roi);
  try {
    decoder.decode(roi, sink, entries);
  } catch (const Error& error) {
    FUZZ_CHECK(error.kind() == ErrorKind::kDecode || error.kind() == ErrorKind::kFormat);
    return std::nullopt;
  }
  FUZZ_CHECK(sink.whole());
  return sink.pixels();
}

bool parse(Bytes file, JpegHeader& header) {
  try {
    return parse_jpeg(file, limits(), header);
  } catch (const Error& error) {
    FUZZ_CHECK(error.kind() == ErrorKind::kDecode || error.kind() == ErrorKind::kLimit);
    return false;
  }
}

// What every instruction set must give for one file. Regions come first, so that a decoder is also
// tried in the state in which damaged entries left it.
struct Results {
  std::optional<Pixels> whole, whole_by_entries, region, region_by_entries;
  bool operator==(const Results&) const = default;
};

Results run(JpegDecoder& decoder, const Case& c, Rect all) {
  const EntryPoints entries{c.entries, c.spacing};
  Results r;
  r.region_by_entries = decode(decoder, c.roi, entries);
  r.region = decode(decoder, c.roi, {});
  r.whole_by_entries = decode(decoder, all, entries);
  r.whole = decode(decoder, all, {});
  return r;
}

void check(const Results& r, const Case& c, Rect all) {
  if (!r.whole) {
    // Each segment is shown to end where the next begins, so entries hide no damage.
    FUZZ_CHECK(!r.whole_by_entries);
    FUZZ_CHECK(!c.exact);
    return;
  }
  FUZZ_CHECK(!r.whole_by_entries || *r.whole_by_entries == *r.whole);
  FUZZ_CHECK(r.region && is_crop(*r.region, c.roi, *r.whole, all.width));
  if (c.exact) {
    FUZZ_CHECK(r.whole_by_entries && r.region_by_entries);
    FUZZ_CHECK(is_crop(*r.region_by_entries, c.roi, *r.whole, all.width));
  }
  const OraclePicture oracle = oracle_decode(c.file);
  if (!oracle.clean) return;
  FUZZ_CHECK(oracle.width == all.width && oracle.height == all.height);
  FUZZ_CHECK(*r.whole == oracle.rgb);
}

Case read_case(Bytes bytes) {
  Input in(bytes);
  Case c;
  c.spacing = in.u16();
  c.kind = in.u8() % 3;
  const auto size = static_cast<size_t>(in.u16());
  in.take(kControl - 5);
  const Bytes given = in.take(size);
  c.entries.assign(given.begin(), given.end());
  c.file = in.rest();
  return c;
}

}  // namespace

namespace fastload::fuzz {

size_t jpeg_begin(Bytes input) {
  if (input.size() < kControl) return input.size();
  return std::min(input.size(), kControl + static_cast<size_t>(input[3] | input[4] << 8));
}

}  // namespace fastload::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kControl) return 0;
  Case c = read_case({data, size});
  JpegHeader header;
  if (!parse(c.file, header)) return 0;
  const Rect all{0, 0, header.width, header.height};
  Input control(Bytes(data, size).subspan(5));
  c.roi = take_roi(control, all.width, all.height);
  const auto levels = take_levels(control);
  if (c.kind != kRaw) {
    const Pixels built = build_entries(c.file, c.spacing, limits());
    c.exact = c.kind == kTrue && !built.empty();
    c.entries = c.kind == kTrue ? built : patched(built, c.entries);
  }
  JpegDecoder first(levels.first), second(levels.second);
  FUZZ_CHECK(first.open(c.file, limits()) && second.open(c.file, limits()));
  const Results results = run(first, c, all);
  check(results, c, all);
  FUZZ_CHECK(run(second, c, all) == results);
  return 0;
}
