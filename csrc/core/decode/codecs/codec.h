// What a codec is: a row of the registry, a reader of headers and a decoder.
#pragma once

#include <memory>
#include <string_view>

#include "decode/decode.h"

namespace fastload {

// A picture that was opened. `info` is probe()'s answer for `bytes`, `format` what plan_format()
// chose for them.
struct OpenPicture {
  Bytes bytes;
  const ImageInfo& info;
  const PixelFormat& format;
  const DecodeLimits& limits;
  const EntryPoints& entries;
  const LoadedBytes* loaded = nullptr;  // of a JPEG: which bytes these are; nullptr: all
};

// Turns pictures of one codec into rows. One for each Decoder, made when its first picture comes;
// keeps its scratch memory.
class PictureDecoder {
 public:
  struct Outcome {
    bool warned = false;    // by the library
    bool by_turbo = false;  // counted as kByTurbo
  };

  PictureDecoder() = default;
  virtual ~PictureDecoder() = default;
  PictureDecoder(const PictureDecoder&) = delete;
  PictureDecoder& operator=(const PictureDecoder&) = delete;

  // The rows of `roi`, as Decoder::decode() says. Throws Error(kDecode) and what the sink throws.
  virtual Outcome decode(const OpenPicture& picture, Rect roi, RowSink& sink) = 0;
};

// A row of the registry.
struct CodecRow {
  Codec codec;
  const char* name;       // in statistics, in the manifest and in messages
  const char* title;      // as people write it
  const char* pillow;     // Pillow's name of the format; "": it has none
  const char* extension;  // of files; "": there are no such files
  // Whether a record that begins so is of this codec; nullptr: leading bytes cannot tell.
  bool (*begins)(Bytes bytes);
  // Size and kind from the header alone, without allocations. Throws Error(kDecode) for a damaged
  // header. nullptr where begins is.
  ImageInfo (*probe)(Bytes bytes);
  // nullptr: only the fallback decodes it, so probe() says kNeedsFallback.
  std::unique_ptr<PictureDecoder> (*make)();
};

// CodecRow::make of a decoder class.
template <class Kind>
std::unique_ptr<PictureDecoder> make_decoder() {
  return std::make_unique<Kind>();
}

// What the header of a picture says that only the fallback decodes: its size, or 0 where it is not
// easily found.
ImageInfo fallback_info(Codec codec, uint32_t width, uint32_t height);

}  // namespace fastload
