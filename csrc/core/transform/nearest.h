// Resize by the nearest pixel: what masks need, whose values must not be mixed. Bit for bit
// Pillow's Image.crop(crop).resize(size, NEAREST) (libImaging/Geometry.c): of 8 bits, output pixel
// i shows source pixel floor(scale / 2 + scale + ... + scale), i additions in double
// (ImagingScaleAffine), of 16 bits floor(scale * (i + 0.5)) (ImagingGenericTransform). They differ
// where a pixel's centre falls between two source pixels.
#pragma once

#include <cstdint>
#include <vector>

#include "base/pixel_format.h"
#include "base/row_sink.h"
#include "transform/view.h"

namespace fastload {

// The picture's column and row that each of the window's shows, where it is cut as pictures of 8
// bits are; -1: none. Throws Error(kValue) as source_rect().
void nearest_positions(const View& view, std::vector<int>& columns, std::vector<int>& rows);

// One per thread; keeps its memory between pictures. Rows of source() go in, rows of the view's
// window come out, in order.
class NearestSampler final : public RowSink {
 public:
  // `fill` is what each channel of a pixel has outside the resized picture. Throws Error(kValue) as
  // source_rect().
  void begin(const View& view, const PixelFormat& format, int fill, RowSink& out);
  // The rectangle of the picture that the view needs.
  [[nodiscard]] Rect source() const { return source_; }
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override;
  void restart() override;
  // Ends the picture. Throws Error(kState) if rows were missing.
  void end();

 private:
  void emit_blank();
  void make_line(const uint8_t* pixels);

  RowSink* out_ = nullptr;
  PixelFormat format_;
  Rect source_;
  std::vector<int> columns_;  // source column of each of the window's columns, -1: outside
  std::vector<int> rows_;     // likewise
  std::vector<uint8_t> line_;
  std::vector<uint8_t> blank_;
  bool is_copy_ = false;  // lines are as they come
  int taken_ = 0;         // source rows so far
  int emitted_ = 0;       // window rows so far
};

}  // namespace fastload
