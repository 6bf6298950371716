// The decoded samples of a few rows of MCUs, and which MCUs a region needs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/geometry.h"
#include "decode/jpeg/parser.h"

namespace fastload {

// MCUs in [column_begin, column_end) x [row_begin, row_end).
struct McuWindow {
  int column_begin = 0;
  int column_end = 0;
  int row_begin = 0;
  int row_end = 0;
};

// libjpeg interpolates chroma horizontally unless it has at most two columns.
bool interpolates_columns(const JpegHeader& header);
// And vertically: then a picture row needs chroma from the row above or below.
bool interpolates_rows(const JpegHeader& header);

// The MCUs that hold every sample `roi` depends on, with the margin that interpolation takes.
McuWindow needed_mcus(const JpegHeader& header, Rect roi);

// One ring of sample rows for each component: one row of MCUs, or two where rows are interpolated.
class JpegPlanes {
 public:
  void reset(const JpegHeader& header, const McuWindow& window);

  // Where the 8 rows of block row `block_row` of a component begin, at MCU column `mcu_column`.
  uint8_t* blocks(int component, int block_row, int mcu_column);
  [[nodiscard]] size_t stride(int component) const {
    return planes_[static_cast<size_t>(component)].stride;
  }
  // Pointer to sample (x, y) of a component, in the component's own coordinates.
  [[nodiscard]] const uint8_t* at(int component, int x, int y) const;

  // Repeats the picture's outermost chroma columns beyond its edges, in the rows of one MCU row.
  void extend_edges(const JpegHeader& header, int mcu_row);

 private:
  struct Plane {
    std::vector<uint8_t> samples;
    size_t stride = 0;
    int ring_rows = 8;    // rows in memory, a power of two
    int first_x = 0;      // column of the sample behind the margin
    int mcu_samples = 8;  // columns in an MCU
  };
  [[nodiscard]] size_t offset(const Plane& plane, int x, int y) const;
  std::array<Plane, 3> planes_;
};

}  // namespace fastload
