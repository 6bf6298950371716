// The second half of decoding a JPEG: planes of samples to rows of RGB. What fills the planes, from
// Huffman codes or from a coefficient record, is not its business.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/geometry.h"
#include "base/row_sink.h"
#include "decode/jpeg/color.h"
#include "decode/jpeg/parser.h"
#include "decode/jpeg/planes.h"

namespace fastload {

// Nanoseconds in each stage, added up (benchmarks).
struct JpegStageTimes {
  uint64_t parse = 0;    // markers, Huffman tables, entry points; a record's header
  uint64_t entropy = 0;  // unstuffing, Huffman decoding, DC sums; unpacking segments
  uint64_t idct = 0;     // dequantisation included
  uint64_t color = 0;    // upsampling included
  uint64_t sink = 0;     // the row sink's own time
};

// The clock of stages: adds the time since `since` to a stage and gives the time now. Nothing
// without `times`.
uint64_t lap(JpegStageTimes* times, uint64_t JpegStageTimes::* stage, uint64_t since);

class JpegPainter {
 public:
  explicit JpegPainter(SimdLevel level) : color_(color_kernels(level)) {}

  // For the region `roi` of the picture that `header` describes, which is borrowed. Throws
  // Error(kValue) for a region that is empty or not inside the picture, Error(kDecode) for `gray`
  // rows of a picture that has more than luma samples.
  void begin(const JpegHeader& header, Rect roi, bool gray);

  // The MCUs that have to be decoded.
  [[nodiscard]] const McuWindow& window() const { return window_; }
  JpegPlanes& planes() { return planes_; }

  // All blocks of the window's MCU row `row` are in the planes: hands over the rows that are whole.
  void end_mcu_row(int row, RowSink& sink, JpegStageTimes* times);

 private:
  void emit(int rows_end, RowSink& sink, JpegStageTimes* times);
  void emit_row(int y, uint8_t* rgb);
  const uint8_t* chroma_row(int component, int y);

  const ColorKernels& color_;
  const JpegHeader* header_ = nullptr;
  JpegPlanes planes_;
  Rect roi_;
  bool gray_ = false;
  McuWindow window_;
  int next_row_ = 0;  // picture row that emit() hands over next
  std::array<std::vector<uint8_t>, 2> upsampled_;
  std::vector<uint8_t> rgb_;
  size_t rgb_stride_ = 0;
};

}  // namespace fastload
