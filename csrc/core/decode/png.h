// PNG by libpng.
#pragma once

#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/geometry.h"
#include "base/pixel_format.h"
#include "base/row_sink.h"
#include "decode/decode.h"

namespace fastload {

class PngReader {
 public:
  PngReader();
  ~PngReader();
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  // Decodes the rows and columns of `roi`; `info` is probe()'s answer for the same bytes, `format`
  // one that plan_format() gave for them. RGB of 8 bits as Pillow's convert("RGB"): alpha and tRNS
  // are dropped and the colour under them kept, gray is repeated, no gamma. 16-bit samples are
  // scaled to 8 bits by 1/257 and rounded (Pillow clips 16-bit gray at 255 and cuts off the low
  // byte of 16-bit colour). Other formats likewise; ids are the palette's indices or the samples as
  // stored. Rows below the ROI are not read unless the file is interlaced. Returns whether libpng
  // warned. Throws Error(kDecode) and what the sink throws.
  bool decode(Bytes bytes, const ImageInfo& info, Rect roi, RowSink& sink,
              const PixelFormat& format = {});

 private:
  struct Session;
  struct Opened;
  void decode_rows(Rect roi, RowSink& sink);
  void decode_interlaced(Rect roi, RowSink& sink);
  void emit(const uint8_t* rows, Rect roi, int first, int count, RowSink& sink);

  std::unique_ptr<Session> session_;
  std::vector<uint8_t> scratch_;   // kChunkRows rows, or the whole picture if interlaced
  std::vector<uint8_t> expanded_;  // palette files: kChunkRows rows of the ROI
};

}  // namespace fastload
