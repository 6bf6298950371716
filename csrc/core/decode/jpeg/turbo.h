// JPEG by libjpeg-turbo's libjpeg interface: every 8-bit sequential and progressive file.
#pragma once

#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/geometry.h"
#include "base/row_sink.h"
#include "decode/decode.h"

namespace fastload {

class JpegTurbo {
 public:
  JpegTurbo();
  ~JpegTurbo();
  JpegTurbo(const JpegTurbo&) = delete;
  JpegTurbo& operator=(const JpegTurbo&) = delete;

  // Decodes the rows and columns of `roi`; `info` is probe()'s answer for the same bytes. The
  // pixels equal those of a full decode with libjpeg-turbo's defaults (accurate integer DCT, fancy
  // upsampling). With `gray`, rows are the luma samples of a file that has no others. Returns
  // whether libjpeg warned. Throws Error(kDecode), Error(kLimit) above
  // `max_scans`, and what the sink throws.
  bool decode(Bytes bytes, const ImageInfo& info, Rect roi, int max_scans, RowSink& sink,
              bool gray = false);

 private:
  struct Session;
  struct Opened;

  std::unique_ptr<Session> session_;
  std::vector<uint8_t> scratch_;  // kChunkRows rows
};

}  // namespace fastload
