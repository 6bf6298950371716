// Packing's view of a file: what is said of it, and progressive JPEGs made baseline ones. Where one
// can be made, libjpeg's pixels of both files are the same, and none is made of it again: it is not
// progressive.
//
// Input: 4 control bytes (unused), the JPEG.
#include <optional>

#include "input.h"
#include "jpeg_input.h"
#include "oracle.h"
#include "pack/baseline.h"
#include "pack/ingest.h"

namespace {

using namespace fastload;
using namespace fastload::fuzz;
using Buffer = std::vector<uint8_t>;

constexpr size_t kControl = 4;

std::optional<Buffer> made_baseline(Bytes file) {
  try {
    return to_baseline(file, limits());
  } catch (const Error& error) {
    FUZZ_CHECK(error.kind() == ErrorKind::kDecode || error.kind() == ErrorKind::kLimit);
    return std::nullopt;
  }
}

// What packing writes into the index is what the header says, or a failure in words.
std::optional<Record> described(Bytes file) {
  Record record{};
  record.length = static_cast<uint32_t>(file.size());
  const Failures failures = describe(file, {&record, 1}, limits());
  FUZZ_CHECK(failures.size() <= 1 && (failures.empty() == (record.length == file.size())));
  if (!failures.empty()) {
    FUZZ_CHECK(record.length == 0 && !failures[0].second.empty());
    return std::nullopt;
  }
  const ImageInfo info = probe(file);
  FUZZ_CHECK(record.width == info.width && record.height == info.height);
  FUZZ_CHECK(record.codec == static_cast<uint8_t>(info.codec) && record.flags == info.flags);
  return record;
}

}  // namespace

namespace fastload::fuzz {

size_t jpeg_begin(Bytes input) { return std::min(input.size(), kControl); }

}  // namespace fastload::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size <= kControl) return 0;
  const Bytes file = Bytes(data, size).subspan(kControl);
  const auto record = described(file);
  const auto baseline = made_baseline(file);
  if (!baseline) return 0;
  FUZZ_CHECK(record && (record->flags & ImageInfo::kProgressive) != 0);
  const auto again = described(*baseline);
  FUZZ_CHECK(again && (again->flags & ImageInfo::kProgressive) == 0);
  FUZZ_CHECK(again->width == record->width && again->height == record->height);
  FUZZ_CHECK(again->channels == record->channels);
  const OraclePicture before = oracle_decode(file), after = oracle_decode(*baseline);
  FUZZ_CHECK(!before.clean || (after.clean && before.rgb == after.rgb));
  FUZZ_CHECK(!made_baseline(*baseline));
  return 0;
}
