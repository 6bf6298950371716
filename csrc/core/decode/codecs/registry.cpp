#include "decode/codecs/registry.h"

#include <cstdio>
#include <vector>

#include "base/error.h"
#include "decode/codecs/codec.h"

namespace fastload {
namespace {

constexpr CodecRow kUnknownCodec{Codec::kUnknown, "unknown", "", "", "", nullptr, nullptr, nullptr};

#define FASTLOAD_ADDRESS(name, number) &k##name##Codec,
constexpr std::array<const CodecRow*, kCodecs> kRows{
    {&kUnknownCodec, FASTLOAD_CODECS(FASTLOAD_ADDRESS)}};
#undef FASTLOAD_ADDRESS

// The rows are in order, so that a codec's number is its place.
constexpr bool is_in_order() {
  size_t place = 0;
#define FASTLOAD_NEXT(name, number) \
  if (++place != (number)) return false;
  FASTLOAD_CODECS(FASTLOAD_NEXT)
#undef FASTLOAD_NEXT
  return true;
}
static_assert(is_in_order());

[[noreturn]] void throw_unknown(Bytes bytes) {
  if (bytes.empty()) throw Error(ErrorKind::kDecode, "the record is empty (0 bytes)");
  std::string lead;
  for (size_t i = 0; i < bytes.size() && i < 8; ++i) {
    char hex[4];
    std::snprintf(hex, sizeof hex, "%s%02x", i == 0 ? "" : " ", static_cast<unsigned>(bytes[i]));
    lead += hex;
  }
  throw Error(ErrorKind::kDecode, "not a " + sniffed_titles() + ": " +
                                      std::to_string(bytes.size()) + " bytes that begin with " +
                                      lead);
}

}  // namespace

const CodecRow& codec_row(Codec codec) {
  const auto number = static_cast<size_t>(codec);
  return *kRows[number < kCodecs ? number : 0];
}

std::string_view codec_name(Codec codec) { return codec_row(codec).name; }

Codec sniff(Bytes bytes) {
  for (const CodecRow* row : kRows) {
    if (row->begins != nullptr && row->begins(bytes)) return row->codec;
  }
  return Codec::kUnknown;
}

std::string sniffed_titles() {
  std::vector<std::string> titles;
  for (const CodecRow* row : kRows) {
    if (row->begins != nullptr && *row->extension != '\0') titles.emplace_back(row->title);
  }
  std::string text;
  for (size_t i = 0; i < titles.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == titles.size() ? " or " : ", ") + titles[i];
  }
  return text;
}

std::string_view path_name(size_t path) {
  static constexpr std::array<std::string_view, kPaths - kCodecs> kOthers{"jpeg_turbo", "pil",
                                                                          "warnings"};
  if (path >= kCodecs) return kOthers[path - kCodecs];
  const CodecRow& row = *kRows[path];
  return row.make == nullptr ? "" : row.name;
}

ImageInfo fallback_info(Codec codec, uint32_t width, uint32_t height) {
  ImageInfo info;
  info.codec = codec;
  info.channels = 3;  // what Pillow makes of it
  info.flags = ImageInfo::kNeedsFallback;
  if (width != 0 && height != 0) {
    info.width = width;
    info.height = height;
  }
  return info;
}

ImageInfo probe(Bytes bytes) {
  const CodecRow& row = codec_row(sniff(bytes));
  if (row.probe == nullptr) throw_unknown(bytes);
  return row.probe(bytes);
}

}  // namespace fastload
