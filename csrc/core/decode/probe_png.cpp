// PNG: IHDR, and whether an acTL chunk (animation) comes before the image data.
#include "base/error.h"
#include "decode/probe_parts.h"

namespace fastload {
namespace {

constexpr size_t kSignature = 8, kChunkHead = 8, kCrc = 4, kHeaderData = 13;
constexpr uint32_t kIhdr = 0x49484452, kIdat = 0x49444154, kActl = 0x6163544C;

bool is_animated(Bytes bytes) {
  size_t at = kSignature;
  while (bytes.size() - at >= kChunkHead) {
    const size_t length = big32(&bytes[at]);
    const uint32_t type = big32(&bytes[at + 4]);
    if (type == kActl) return true;
    if (type == kIdat || length > bytes.size() - at - kChunkHead) return false;
    at += kChunkHead + length;
    if (bytes.size() - at < kCrc) return false;
    at += kCrc;
  }
  return false;
}

}  // namespace

ImageInfo probe_png(Bytes bytes) {
  if (bytes.size() < kSignature + kChunkHead + kHeaderData) {
    throw Error(ErrorKind::kDecode, "PNG: the file ends early (no IHDR chunk)");
  }
  const uint8_t* head = &bytes[kSignature];
  if (big32(head) != kHeaderData || big32(head + 4) != kIhdr) {
    throw Error(ErrorKind::kDecode, "PNG: the first chunk is not an IHDR of 13 bytes");
  }
  ImageInfo info;
  info.codec = Codec::kPng;
  info.width = big32(head + 8);
  info.height = big32(head + 12);
  if (info.width == 0 || info.height == 0)
    throw Error(ErrorKind::kDecode, "PNG: width or height is 0");
  const uint8_t depth = head[16], colour = head[17];
  switch (colour) {
    case 0:  // gray
      info.channels = 1;
      break;
    case 2:  // RGB
    case 3:  // palette
      info.channels = 3;
      break;
    case 4:  // gray and alpha
      info.channels = 2;
      break;
    case 6:  // RGB and alpha
      info.channels = 4;
      break;
    default:
      throw Error(ErrorKind::kDecode,
                  "PNG: colour type " + std::to_string(colour) + "; legal are 0, 2, 3, 4 and 6");
  }
  if (depth == 16) info.flags |= ImageInfo::kSixteenBit;
  if (is_animated(bytes)) info.flags |= ImageInfo::kAnimated;
  return info;
}

}  // namespace fastload
