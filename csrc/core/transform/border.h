// Fill around a part of a picture, on the way of its rows.
#pragma once

#include <cstdint>
#include <vector>

#include "base/geometry.h"
#include "base/row_sink.h"

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

}  // namespace fastload
