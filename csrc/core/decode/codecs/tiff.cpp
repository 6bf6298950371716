// TIFF: Pillow decodes it. The size, so that limits are checked before Pillow sees the bytes.
#include "decode/codecs/codec.h"
#include "decode/codecs/header_bytes.h"

namespace fastload {
namespace {

// Classic TIFF and BigTIFF, both byte orders.
bool begins(Bytes bytes) {
  using namespace std::string_view_literals;
  for (std::string_view magic : {"II*\0"sv, "MM\0*"sv, "II+\0"sv, "MM\0+"sv}) {
    if (starts_with(bytes, magic)) return true;
  }
  return false;
}

// Classic TIFF: ImageWidth (256) and ImageLength (257) in the first directory, as SHORT or LONG.
ImageInfo probe_tiff(Bytes bytes) {
  uint32_t width = 0, height = 0;
  const bool little = bytes[0] == 'I';
  const auto read16 = [&](size_t at) { return little ? little16(&bytes[at]) : big16(&bytes[at]); };
  const auto read32 = [&](size_t at) { return little ? little32(&bytes[at]) : big32(&bytes[at]); };
  const bool classic = bytes.size() >= 8 && read16(2) == 42;
  const size_t directory = classic ? read32(4) : bytes.size();
  const size_t entries = directory <= bytes.size() - 2 ? read16(directory) : 0;
  for (size_t i = 0; i < entries; ++i) {
    const size_t at = directory + 2 + i * 12;
    if (at + 12 > bytes.size()) break;
    const uint32_t tag = read16(at), type = read16(at + 2);
    if ((tag != 256 && tag != 257) || (type != 3 && type != 4)) continue;
    (tag == 256 ? width : height) = type == 3 ? read16(at + 8) : read32(at + 8);
  }
  return fallback_info(Codec::kTiff, width, height);
}

}  // namespace

constinit const CodecRow kTiffCodec{Codec::kTiff, "tiff", "TIFF",     "TIFF",
                                    ".tif",       begins, probe_tiff, nullptr};

}  // namespace fastload
