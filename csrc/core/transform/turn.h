// Quarter turns of pictures, counter-clockwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/row_sink.h"
#include "transform/buffer.h"

namespace fastload {

// Writes the picture of width x height pixels, rows back to back, turned `quarter` times (0 to 3),
// into rows that begin `row` bytes apart.
void turn_pixels(const uint8_t* from, int width, int height, size_t pixel_bytes, int quarter,
                 uint8_t* to, size_t row);

// Takes the rows of a picture, and hands it on turned. One per thread; keeps its memory.
class TurnSink final : public RowSink {
 public:
  // Starts a picture of width x height pixels on its way to `out`, and returns where its rows go:
  // to `out` itself, where there is nothing to turn.
  RowSink& begin(int quarter, int width, int height, size_t pixel_bytes, RowSink& out);
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override;
  void restart() override {}  // rows are put where they belong, again
  // All rows are there: hands them on.
  void end();
  // Lets go of memory of more than `most` bytes.
  void trim(size_t most) {
    given_.trim(most);
    turned_.trim(most);
  }

 private:
  RowSink* out_ = nullptr;  // nullptr: nothing is turned
  int quarter_ = 0, width_ = 0, height_ = 0;
  size_t pixel_bytes_ = 0;
  Buffer<uint8_t> given_, turned_;
};

}  // namespace fastload
