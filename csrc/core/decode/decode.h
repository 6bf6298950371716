// Encoded bytes to rows of pixels. One Decoder per thread; it keeps its scratch memory between
// images.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/geometry.h"
#include "base/loaded_bytes.h"
#include "base/pixel_format.h"
#include "base/row_sink.h"
#include "base/shown.h"
#include "decode/codecs/registry.h"

namespace fastload {

// Where decoding of a JPEG may begin; layout: decode/jpeg/entry_points.h.
struct EntryPoints {
  static constexpr int kRow = 0;  // spacing: one segment a row of MCUs
  Bytes packed;                   // empty: none
  int spacing = kRow;             // pixels, or kRow
};

struct ImageInfo {
  Codec codec = Codec::kUnknown;
  uint32_t width = 0;   // pixels, 0 if the header could not be read natively (PIL's codecs)
  uint32_t height = 0;  // pixels
  uint8_t channels =
      0;              // components as stored: 1 gray, 2 gray+alpha, 3 RGB or YCbCr, 4 CMYK or RGBA
  uint8_t flags = 0;  // kProgressive | kSixteenBit | kAnimated | kNeedsFallback
  static constexpr uint8_t kProgressive = 1;    // progressive JPEG
  static constexpr uint8_t kSixteenBit = 2;     // more than 8 bits a component
  static constexpr uint8_t kAnimated = 4;       // several frames; the first counts
  static constexpr uint8_t kNeedsFallback = 8;  // only PIL decodes it (see FallbackDecode)
};

// Reads the header only: no allocation in proportion to the image. Throws Error(kDecode) when the
// header of a sniffed JPEG, PNG or WebP is damaged. Codecs without a native decoder give codec and
// kNeedsFallback, and sizes of 0 where the header is not understood. 12-bit, lossless and
// arithmetic JPEGs that libjpeg-turbo's 8-bit interface refuses get kNeedsFallback.
ImageInfo probe(Bytes bytes);

struct DecodeLimits {
  uint64_t max_pixels = 89'478'485;  // Pillow's MAX_IMAGE_PIXELS; above it: Error(kLimit)
  uint32_t max_side = 65'500;        // libjpeg's JPEG_MAX_DIMENSION
  int max_scans = 100;               // progressive JPEG
};

// 8-bit interleaved RGB pixels of a whole picture, rows without gaps.
struct RgbImage {
  uint32_t width = 0;
  uint32_t height = 0;
  std::vector<uint8_t> pixels;  // height * width * 3, and RowSink::kSlack bytes more
};

// Decodes what the core cannot (GIF, BMP, TIFF, 12-bit JPEG), as it is to be shown: the binding
// layer gives Pillow here. May be called from any thread, one call at a time per Decoder. Throws
// Error(kDecode).
using FallbackDecode = std::function<RgbImage(Bytes, const Shown&)>;

// Of a picture of which probe() says `info`: width and height as they are shown.
ImageInfo shown_info(Bytes bytes, ImageInfo info, const Shown& shown);

// How many pictures each path decoded: a codec's own at the codec's number, then these.
enum Path : size_t {
  kByTurbo = kCodecs,  // JPEGs by libjpeg-turbo: progressive, CMYK, damaged, ...
  kByFallback,
  kWarnings,  // pictures that decoded with a library's warning (e.g. extraneous bytes)
  kPaths,
};
using DecodeCounts = std::array<uint64_t, kPaths>;

// A path's name; "" for that of a codec which only the fallback decodes.
std::string_view path_name(size_t path);

// Of a record that was loaded in parts: decoding needs other bytes of it, or another decoder than
// fastload's own, which wants them all. Says nothing about the record.
class NeedsWhole final : public Error {
 public:
  NeedsWhole() : Error(ErrorKind::kState, "The record is needed whole.") {}
};

class Decoder {
 public:
  explicit Decoder(DecodeLimits limits = {}, FallbackDecode fallback = nullptr);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // From now on other limits and another fallback, which is borrowed until the next call of this.
  void configure(const DecodeLimits& limits, const FallbackDecode& fallback);

  // Width and height in pixels, from the header or, for PIL's codecs, from the decoded picture.
  // Throws Error(kDecode) or Error(kLimit) (sizes are checked here, before anything is allocated),
  // Error(kDecode) also where the picture cannot be had in `format` (decode/formats.h says what
  // can), Error(kValue) for what is no format. `shown`: width, height and pixels are those of the
  // picture that is turned, and composed. Coefficient records are not turned: who makes them for
  // such pictures leaves out JPEGs that are.
  ImageInfo open(Bytes bytes, const PixelFormat& format = {}, const Shown& shown = {});
  // The same of a baseline JPEG of which the bytes `loaded` are there, one behind the other. Throws
  // NeedsWhole, and from decode(), too, wherever all bytes would have to say what it is, or whether
  // it is damaged, and where it is turned; never another Error for what the bytes are.
  ImageInfo open_part(Bytes bytes, const LoadedBytes& loaded, const PixelFormat& format = {},
                      const Shown& shown = {});
  // The same for raw pixels, whose size and format only the index knows; 16 bits are little-endian.
  // Throws Error(kDecode) if bytes.size() is not that of width * height pixels.
  ImageInfo open_raw(Bytes bytes, uint32_t width, uint32_t height, const PixelFormat& stored = {},
                     const PixelFormat& format = {});

  // Decodes the picture given to the last open(): calls sink.rows() with the rows [0, roi.height)
  // of `roi` (sink row 0 is picture row roi.y, sink column 0 is picture column roi.x), several rows
  // a call, in the format it was opened in. Pixels equal the codec library's default full decode,
  // converted to RGB as Pillow's convert("RGB") does. Work above, below and beside the ROI is left
  // out where the codec allows. What is turned comes when all of the ROI has been decoded. `roi`
  // must be inside the picture and not empty, else Error(kValue).
  // A data error inside the rows that are needed, or a file that ends before them, is
  // Error(kDecode).
  //
  // `entries` are the JPEG's entry points, or empty. Where fastload's own JPEG decoder meets
  // damage, in the stream or in the entries, libjpeg-turbo decodes the picture instead, after
  // sink.restart(): its verdict, and its pixels, are what users know.
  void decode(Rect roi, RowSink& sink, const EntryPoints& entries = {});

  [[nodiscard]] const DecodeCounts& counts() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fastload
