// BMP: Pillow decodes it. The size, so that limits are checked before Pillow sees the bytes.
#include "decode/codecs/codec.h"
#include "decode/codecs/header_bytes.h"

namespace fastload {
namespace {

bool begins(Bytes bytes) { return starts_with(bytes, "BM") && bytes.size() >= 26; }

// A header of 12 bytes has 16-bit sizes, all later ones 32-bit, with a negative height for
// top-down.
ImageInfo probe_bmp(Bytes bytes) {
  if (little32(&bytes[14]) == 12) {
    return fallback_info(Codec::kBmp, little16(&bytes[18]), little16(&bytes[20]));
  }
  const uint32_t height = little32(&bytes[22]);
  return fallback_info(Codec::kBmp, little32(&bytes[18]),
                       height > 0x80000000u ? 0u - height : height);
}

}  // namespace

constinit const CodecRow kBmpCodec{Codec::kBmp, "bmp",  "BMP",     "BMP",
                                   ".bmp",      begins, probe_bmp, nullptr};

}  // namespace fastload
