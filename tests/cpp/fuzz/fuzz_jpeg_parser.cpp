// The marker parser and every codec's probe, on bytes as they are. Where the parser takes a file
// and libjpeg reads its header without a warning, both have found the same.
#include "decode/jpeg/parser.h"
#include "input.h"
#include "jpeg_input.h"
#include "oracle.h"

namespace {

using namespace fastload;
using namespace fastload::fuzz;

// False: refused as damaged or too large.
template <class Call>
bool accepted(Call call) {
  try {
    call();
    return true;
  } catch (const Error& error) {
    FUZZ_CHECK(error.kind() == ErrorKind::kDecode || error.kind() == ErrorKind::kLimit);
    return false;
  }
}

void check_layout(const JpegHeader& header, Bytes bytes) {
  FUZZ_CHECK(header.width > 0 && header.height > 0);
  FUZZ_CHECK(static_cast<uint64_t>(header.width) * static_cast<uint64_t>(header.height) <=
             kMaxPixels);
  FUZZ_CHECK(header.component_count == 1 || header.component_count == 3);
  FUZZ_CHECK(header.scan_begin <= bytes.size());
  FUZZ_CHECK(header.mcus_per_row * header.mcu_width >= header.width);
  FUZZ_CHECK((header.mcus_per_row - 1) * header.mcu_width < header.width);
  FUZZ_CHECK(header.mcu_rows * header.mcu_height >= header.height);
  FUZZ_CHECK((header.mcu_rows - 1) * header.mcu_height < header.height);
  FUZZ_CHECK(header.blocks_per_mcu >= 1 && header.blocks_per_mcu <= 6);
}

void check_against_libjpeg(const JpegHeader& ours, Bytes bytes) {
  JpegHeader theirs;
  if (!oracle_header(bytes, theirs)) return;
  FUZZ_CHECK(ours.width == theirs.width && ours.height == theirs.height);
  FUZZ_CHECK(ours.component_count == theirs.component_count);
  FUZZ_CHECK(ours.restart_interval == theirs.restart_interval);
  for (size_t c = 0; c < static_cast<size_t>(ours.component_count); ++c) {
    const JpegComponent &a = ours.components[c], &b = theirs.components[c];
    FUZZ_CHECK(a.id == b.id && a.quant == b.quant && a.dc == b.dc && a.ac == b.ac);
    FUZZ_CHECK(ours.component_count == 1 || (a.h == b.h && a.v == b.v));
    FUZZ_CHECK(ours.quant[a.quant].steps == theirs.quant[a.quant].steps);
    FUZZ_CHECK(ours.dc[a.dc] == theirs.dc[a.dc] && ours.ac[a.ac] == theirs.ac[a.ac]);
  }
}

}  // namespace

namespace fastload::fuzz {

size_t jpeg_begin(Bytes) { return 0; }

}  // namespace fastload::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes bytes(data, size);
  ImageInfo info;
  const bool probed = accepted([&] { info = probe(bytes); });
  JpegHeader header;
  bool ours = false;
  if (!accepted([&] { ours = parse_jpeg(bytes, limits(), header); }) || !ours) return 0;
  check_layout(header, bytes);
  if (sniff(bytes) == Codec::kJpeg) {
    FUZZ_CHECK(probed && info.codec == Codec::kJpeg);
    FUZZ_CHECK(static_cast<int>(info.width) == header.width);
    FUZZ_CHECK(static_cast<int>(info.height) == header.height);
    FUZZ_CHECK(info.channels == header.component_count && info.flags == 0);
  }
  check_against_libjpeg(header, bytes);
  return 0;
}
