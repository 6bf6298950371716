// WebP by libwebp: lossy and lossless, not animated.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "base/geometry.h"
#include "base/row_sink.h"
#include "decode/decode.h"

namespace fastload {

class WebpReader {
 public:
  // Decodes the rows and columns of `roi`; `info` is probe()'s answer for the same bytes. Alpha is
  // dropped, the colour under it kept. Throws Error(kDecode) and what the sink throws.
  void decode(Bytes bytes, const ImageInfo& info, Rect roi, RowSink& sink);

 private:
  std::vector<uint8_t> scratch_;  // the ROI and its margin
};

}  // namespace fastload
