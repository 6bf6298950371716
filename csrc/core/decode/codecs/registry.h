// All codecs of pictures. A codec is a row here and a file beside this one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace fastload {

// Their numbers are those of the index format (FORMAT.md), one after another from 1, and are never
// given to another codec. Leading bytes are tried in this order.
#define FASTLOAD_CODECS(row)                                                             \
  row(Jpeg, 1) row(Png, 2) row(Webp, 3) row(Gif, 4) row(Bmp, 5) row(Tiff, 6) row(Raw, 7) \
      row(Coefficients, 8)

enum class Codec : uint8_t {
  kUnknown = 0,  // not recognised
#define FASTLOAD_NUMBER(name, number) k##name = number,
  FASTLOAD_CODECS(FASTLOAD_NUMBER)
#undef FASTLOAD_NUMBER
};

struct CodecRow;  // decode/codecs/codec.h
#define FASTLOAD_DECLARE(name, number) extern const CodecRow k##name##Codec;
FASTLOAD_CODECS(FASTLOAD_DECLARE)
#undef FASTLOAD_DECLARE

#define FASTLOAD_COUNT(name, number) +1
inline constexpr size_t kCodecs = 1 FASTLOAD_CODECS(FASTLOAD_COUNT);  // kUnknown is one
#undef FASTLOAD_COUNT

// A number that no codec has gives the row of kUnknown.
const CodecRow& codec_row(Codec codec);
std::string_view codec_name(Codec codec);

// The codec by the leading bytes alone; never by a name. kUnknown if none fits. Never kRaw.
Codec sniff(Bytes bytes);

// "JPEG, PNG, WebP, GIF, BMP or TIFF": the kinds of files that sniff() tells apart.
std::string sniffed_titles();

}  // namespace fastload
