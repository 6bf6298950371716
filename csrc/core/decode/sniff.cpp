// The codec of a record by its leading bytes.
#include <algorithm>
#include <array>

#include "decode/decode.h"

namespace fastload {
namespace {

constexpr std::array<std::string_view, 8> kNames = {"unknown", "jpeg", "png",  "webp",
                                                    "gif",     "bmp",  "tiff", "raw"};

bool starts_with(Bytes bytes, std::string_view magic, size_t at = 0) {
  return bytes.size() >= at + magic.size() &&
         std::equal(magic.begin(), magic.end(), bytes.begin() + static_cast<ptrdiff_t>(at),
                    [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; });
}

}  // namespace

std::string_view codec_name(Codec codec) {
  const auto i = static_cast<size_t>(codec);
  return i < kNames.size() ? kNames[i] : kNames[0];
}

Codec sniff(Bytes bytes) {
  using namespace std::string_view_literals;
  if (starts_with(bytes, "\xFF\xD8\xFF"sv)) return Codec::kJpeg;
  if (starts_with(bytes, "\x89PNG\r\n\x1A\n"sv)) return Codec::kPng;
  if (starts_with(bytes, "RIFF"sv) && starts_with(bytes, "WEBP"sv, 8)) return Codec::kWebp;
  if (starts_with(bytes, "GIF87a"sv) || starts_with(bytes, "GIF89a"sv)) return Codec::kGif;
  // Classic TIFF and BigTIFF, both byte orders.
  for (std::string_view magic : {"II*\0"sv, "MM\0*"sv, "II+\0"sv, "MM\0+"sv}) {
    if (starts_with(bytes, magic)) return Codec::kTiff;
  }
  if (starts_with(bytes, "BM"sv) && bytes.size() >= 26) return Codec::kBmp;
  return Codec::kUnknown;
}

}  // namespace fastload
