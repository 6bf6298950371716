// GIF, BMP and TIFF: the sizes, so that limits are checked before Pillow sees the bytes.
#include "decode/probe_parts.h"

namespace fastload {
namespace {

void probe_gif(Bytes bytes, ImageInfo& info) {
  if (bytes.size() < 10) return;
  info.width = little16(&bytes[6]);
  info.height = little16(&bytes[8]);
}

// A BMP header of 12 bytes has 16-bit sizes, all later ones 32-bit, with a negative height for
// top-down.
void probe_bmp(Bytes bytes, ImageInfo& info) {
  if (bytes.size() < 26) return;
  if (little32(&bytes[14]) == 12) {
    info.width = little16(&bytes[18]);
    info.height = little16(&bytes[20]);
    return;
  }
  info.width = little32(&bytes[18]);
  const uint32_t height = little32(&bytes[22]);
  info.height = height > 0x80000000u ? 0u - height : height;
}

// Classic TIFF: ImageWidth (256) and ImageLength (257) in the first directory, as SHORT or LONG.
void probe_tiff(Bytes bytes, ImageInfo& info) {
  const bool little = bytes[0] == 'I';
  const auto read16 = [&](size_t at) { return little ? little16(&bytes[at]) : big16(&bytes[at]); };
  const auto read32 = [&](size_t at) { return little ? little32(&bytes[at]) : big32(&bytes[at]); };
  if (bytes.size() < 8 || read16(2) != 42) return;
  const size_t directory = read32(4);
  if (directory > bytes.size() - 2) return;
  const size_t entries = read16(directory);
  for (size_t i = 0; i < entries; ++i) {
    const size_t at = directory + 2 + i * 12;
    if (at + 12 > bytes.size()) return;
    const uint32_t tag = read16(at), type = read16(at + 2);
    if ((tag != 256 && tag != 257) || (type != 3 && type != 4)) continue;
    (tag == 256 ? info.width : info.height) = type == 3 ? read16(at + 8) : read32(at + 8);
  }
}

}  // namespace

ImageInfo probe_other(Codec codec, Bytes bytes) {
  ImageInfo info;
  info.codec = codec;
  info.channels = 3;  // what Pillow makes of it
  info.flags = ImageInfo::kNeedsFallback;
  if (codec == Codec::kGif) probe_gif(bytes, info);
  if (codec == Codec::kBmp) probe_bmp(bytes, info);
  if (codec == Codec::kTiff) probe_tiff(bytes, info);
  if (info.width == 0 || info.height == 0) info.width = info.height = 0;
  return info;
}

}  // namespace fastload
