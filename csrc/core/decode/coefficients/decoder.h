// Decodes coefficient records: only the segments that a region needs, from wherever they lie.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "base/cpu.h"
#include "base/geometry.h"
#include "base/row_sink.h"
#include "decode/coefficients/record.h"
#include "decode/coefficients/segment.h"
#include "decode/jpeg/painter.h"

namespace fastload {

// One per thread; keeps its memory between pictures.
class CoefficientDecoder {
 public:
  explicit CoefficientDecoder(SimdLevel level = simd_level())
      : kernels_(segment_kernels(level)), painter_(level) {}

  // Reads the header, as read_record() does. The bytes are borrowed.
  void open(Bytes bytes, const DecodeLimits& limits = {});
  [[nodiscard]] const CoefficientRecord& record() const { return record_; }

  // Hands the rows of `roi` to `sink`, equal to those of the JPEG that the record was. Throws
  // Error(kValue) for a region that is empty or not inside the picture, Error(kDecode) for damage
  // in the segments that had to be read (rows before them may have been handed over). With `gray`,
  // rows are the luma samples of a picture that has no others.
  void decode(Rect roi, RowSink& sink, bool gray = false);

  // Adds each stage's time to `times` from now on; nullptr switches the clocks off.
  void set_times(JpegStageTimes* times) { times_ = times; }

 private:
  void decode_mcu_row(int row);
  const uint8_t* unpack(size_t first, int column, size_t count, const uint8_t* at);
  void transform(int row, int column, const SegmentBlocks& blocks, const SegmentShape& shape);

  const SegmentKernels kernels_;
  JpegPainter painter_;
  CoefficientRecord record_;
  SegmentShape whole_, last_;  // of the segments of a row, and of its last one
  const uint8_t* row_begin_ = nullptr;
  std::vector<SegmentBlocks> blocks_;
  JpegStageTimes* times_ = nullptr;
};

}  // namespace fastload
