// Fill around a part of a picture, on the way of its rows.
#pragma once

#include <cstdint>
#include <vector>

#include "base/geometry.h"
#include "base/row_sink.h"
#include "transform/buffer.h"
#include "transform/view.h"

namespace fastload {

// One per thread and place; keeps its memory between pictures. Rows of a part go in, rows of the
// whole picture come out.
class BorderSink final : public RowSink {
 public:
  // Starts a picture of width x height pixels, of which `part` comes: in the picture's pixels, and
  // perhaps over its border or beyond. Elsewhere is `pixel`. Returns where the part's rows go: to
  // `out` itself, where it is all of the picture.
  RowSink& begin(const Rect& part, int width, int height, const std::vector<uint8_t>& pixel,
                 RowSink& out);
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override;
  void restart() override;

 private:
  void fill_to(int row);
  void copy(const uint8_t* pixels, size_t stride, int count);

  static constexpr int kLines = 16;

  RowSink* out_ = nullptr;
  Rect part_;
  int height_ = 0;
  int emitted_ = 0;                     // rows of the picture so far
  size_t skipped_ = 0;                  // bytes of a part's row that lie left of the picture
  size_t left_ = 0;                     // bytes of fill before the part
  size_t copied_ = 0;                   // bytes of a part's row that are seen
  size_t line_bytes_ = 0;               // of the picture's row
  size_t stride_ = 0;                   // of lines_
  std::vector<uint8_t> blank_, lines_;  // a row of fill; rows of which the part's columns change
};

// A border of a picture's own pixels: repeated, or mirrored. Takes the rows of the part that all of
// it is made of, and hands on the whole. One per thread; keeps its memory.
class MirrorSink final : public RowSink {
 public:
  // Starts a picture of which the window's rows go to `out`; returns where the rows of `part`, the
  // window of without_fill(view), go: to `out` itself, where there is no border.
  RowSink& begin(const View& view, const Rect& part, size_t pixel_bytes, RowSink& out);
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override;
  void restart() override {}  // rows are put where they belong, again
  // All rows are there: hands them on.
  void end();
  // Lets go of memory of more than `most` bytes.
  void trim(size_t most) { part_.trim(most); }

 private:
  RowSink* out_ = nullptr;  // nullptr: there is no border
  size_t pixel_bytes_ = 0, row_bytes_ = 0;  // of a pixel and a row of the part
  Buffer<uint8_t> part_;
  std::vector<uint8_t> line_;
  std::vector<int> columns_, rows_;
};

}  // namespace fastload
