// Width, height and kind of an encoded picture from its header.
#include <cstdio>

#include "base/error.h"
#include "decode/probe_parts.h"

namespace fastload {
namespace {

[[noreturn]] void throw_unknown(Bytes bytes) {
  if (bytes.empty()) throw Error(ErrorKind::kDecode, "the record is empty (0 bytes)");
  std::string lead;
  for (size_t i = 0; i < bytes.size() && i < 8; ++i) {
    char hex[4];
    std::snprintf(hex, sizeof hex, "%s%02x", i == 0 ? "" : " ", static_cast<unsigned>(bytes[i]));
    lead += hex;
  }
  throw Error(ErrorKind::kDecode,
              "not a JPEG, PNG, WebP, GIF, BMP or TIFF: " + std::to_string(bytes.size()) +
                  " bytes that begin with " + lead);
}

}  // namespace

ImageInfo probe(Bytes bytes) {
  const Codec codec = sniff(bytes);
  switch (codec) {
    case Codec::kJpeg:
      return probe_jpeg(bytes);
    case Codec::kPng:
      return probe_png(bytes);
    case Codec::kWebp:
      return probe_webp(bytes);
    case Codec::kGif:
    case Codec::kBmp:
    case Codec::kTiff:
      return probe_other(codec, bytes);
    case Codec::kUnknown:
    case Codec::kRaw:
      break;
  }
  throw_unknown(bytes);
}

}  // namespace fastload
