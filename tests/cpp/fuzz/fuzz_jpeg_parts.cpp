// JPEG files taken apart and put together again: coefficients are libjpeg's where it reads them
// without a warning, and both instruction sets write the same file, or refuse it alike. The rest
// with bytes changed, and with other coefficients, is refused or gives some file.
//
// Input: 16 control bytes, then the JPEG. Control: the instruction sets (2 bytes), three changes of
// the rest's bytes (place, 2 bytes, and XOR mask), three coefficients that change (place and value,
// 1 byte each: of the value the upper one).
#include <algorithm>
#include <optional>

#include "../listed_planes.h"
#include "base/cpu.h"
#include "input.h"
#include "jpeg_input.h"
#include "transcode/jpeg_parts.h"
#include "transcode/jpeg_read.h"
#include "transcode/rest.h"

namespace {

using namespace fastload;
using namespace fastload::fuzz;
using File = std::vector<uint8_t>;

constexpr size_t kControl = 16;

bool split(Bytes file, JpegParts& parts) {
  try {
    split_jpeg(file, limits(), parts);
    return true;
  } catch (const Error& error) {
    FUZZ_CHECK(error.kind() == ErrorKind::kDecode || error.kind() == ErrorKind::kLimit);
    return false;
  }
}

// Nothing where it is refused.
std::optional<File> join(const JpegParts& parts) {
  try {
    File file;
    join_jpeg(parts, file);
    return file;
  } catch (const Error& error) {
    FUZZ_CHECK(error.kind() == ErrorKind::kDecode);
    return std::nullopt;
  }
}

std::array<std::vector<int16_t>, 3> planes_of(const JpegParts& parts) {
  return parts.blocks.planes(parts.header);
}

struct Level {
  explicit Level(SimdLevel level) { set_simd_level(simd_level_name(level)); }
  ~Level() { set_simd_level(simd_level_name(best)); }
  SimdLevel best = simd_level();
};

void check_coefficients(Bytes file, const JpegParts& parts) {
  JpegParts wanted = parts;
  wanted.blocks.open(wanted.header);
  try {
    read_coefficients(file, limits(), wanted);
  } catch (const Error& error) {
    FUZZ_CHECK(error.kind() == ErrorKind::kDecode || error.kind() == ErrorKind::kLimit);
    return;
  }
  wanted.blocks.close();
  FUZZ_CHECK(planes_of(wanted) == planes_of(parts));
}

// A file that came back has the coefficients that it had.
void check_again(const JpegParts& parts, const File& file) {
  JpegParts again;
  FUZZ_CHECK(split(file, again));
  FUZZ_CHECK(planes_of(again) == planes_of(parts) && again.rest == parts.rest);
}

void change(Input& control, JpegParts& parts) {
  JpegRest rest = unpack_rest(parts.rest);
  for (int i = 0; i < 3; ++i) {
    const auto at = static_cast<size_t>(control.u16()) % rest.frame.size();
    rest.frame[at] ^= control.u8();
  }
  auto planes = planes_of(parts);
  for (int i = 0; i < 3; ++i) {
    const size_t at = control.u8() * size_t{7} % planes[0].size();
    planes[0][at] = static_cast<int16_t>(control.u8() << 8);
  }
  test::list_planes(planes, parts);
  parts.rest = pack_rest(rest.frame);
}

}  // namespace

namespace fastload::fuzz {

size_t jpeg_begin(Bytes input) { return std::min(input.size(), kControl); }

}  // namespace fastload::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kControl) return 0;
  const Bytes file = Bytes(data, size).subspan(kControl);
  Input control(Bytes(data, kControl));
  const auto levels = take_levels(control);
  JpegParts parts;
  if (!split(file, parts)) return 0;
  if (!parts.is_progressive) check_coefficients(file, parts);
  std::optional<File> first, second;
  {
    const Level level(levels.first);
    first = join(parts);
  }
  {
    const Level level(levels.second);
    second = join(parts);
  }
  FUZZ_CHECK(first == second);
  if (first && std::equal(first->begin(), first->end(), file.begin(), file.end())) {
    check_again(parts, *first);
  }
  // Damage of the packed bytes, then of what they say.
  const JpegParts whole = parts;
  parts.rest[data[2] % parts.rest.size()] ^= data[4];
  static_cast<void>(join(parts));
  parts = whole;
  change(control, parts);
  static_cast<void>(join(parts));
  return 0;
}
