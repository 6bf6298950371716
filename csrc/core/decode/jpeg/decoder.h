// The decoder for the files that training sets consist of: 8-bit baseline Huffman JPEG, gray or
// YCbCr. It decodes only what a region needs, and begins at entry points where the file has them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/geometry.h"
#include "base/row_sink.h"
#include "decode/decode.h"
#include "decode/jpeg/entry_points.h"
#include "decode/jpeg/idct.h"
#include "decode/jpeg/painter.h"
#include "decode/jpeg/parser.h"
#include "decode/jpeg/scan.h"

namespace fastload {

// One per thread; keeps its memory between images.
class JpegDecoder {
 public:
  explicit JpegDecoder(SimdLevel level = simd_level());

  // Reads the header. False: not a file for this decoder (see parse_jpeg); libjpeg-turbo takes it.
  // Throws Error(kDecode) for a file damaged before its scan, Error(kLimit) for one too large.
  // With `loaded` the file's bytes are these; decode() throws NeedsWhole where others are needed.
  bool open(Bytes file, const DecodeLimits& limits = {}, const LoadedBytes* loaded = nullptr);
  [[nodiscard]] ImageInfo info() const;

  // Hands the rows of `roi` to `sink`, equal to libjpeg-turbo's default decode of the whole
  // picture. Throws Error(kValue) for a region that is empty or not inside the picture,
  // Error(kDecode) for damage in what had to be decoded (rows before it may have been handed over),
  // Error(kFormat) for entries that cannot be this file's. Without entries everything before the
  // region's last row is Huffman-decoded, but no more.
  // With `gray`, rows are the luma samples of a file that has no others.
  void decode(Rect roi, RowSink& sink, EntryPoints entries = {}, bool gray = false);

  // Adds each stage's time to `times` from now on; nullptr switches the clocks off.
  void set_times(JpegStageTimes* times) { times_ = times; }

 private:
  void plan_targets();
  void decode_mcu_row(int row);

  SimdLevel level_;
  IdctKernel idct_;
  JpegPainter painter_;
  CoefPlaces places_;

  Bytes file_;             // its last bytes, where not all are there
  size_t file_begin_ = 0;  // which byte of the file is its first
  bool is_part_ = false;
  JpegHeader header_;
  JpegScan scan_;

  int strip_mcus_ = 0;  // MCUs decoded before they are transformed
  std::vector<int16_t> coefs_;
  bool coefs_dirty_ = false;
  std::array<size_t, 6> strip_offset_{};  // coefficients of each row of blocks of an MCU
  BlockTargets targets_{};
  JpegStageTimes* times_ = nullptr;
};

}  // namespace fastload
