// Antialiased separable resize, bit for bit Pillow 13's ImagingResample on uint8
// (libImaging/Resample.c): 22-bit fixed-point coefficients, a rounded 8-bit picture between the
// passes, each channel by itself. 16 bits are Pillow's "I;16": coefficients and sums in double,
// rounded to 16 bits after each pass, but clipped to [0, 65535], which Pillow does byte by byte and
// so differently for values beyond. The vertical pass is first when (in_h - out_h) > 0 and
// (in_h - out_h) > 2 * (in_w - out_w).
#pragma once

#include <memory>

#include "base/pixel_format.h"
#include "base/row_sink.h"
#include "transform/axis.h"
#include "transform/view.h"

namespace fastload {

// A part of a picture brought to another grid: how each axis is made.
struct Placing {
  AxisSpec across, down;
};

// The rectangle of the picture that a part is made of.
Rect source_rect(const Placing& placing);

// One per thread; keeps its scratch memory between pictures. Rows of source_rect(view) go in, rows
// of the view's window come out, in order, as soon as they are complete.
class Resampler final : public RowSink {
 public:
  Resampler();
  ~Resampler();
  Resampler(const Resampler&) = delete;
  Resampler& operator=(const Resampler&) = delete;

  // Starts a picture: the rows of source_rect(view, filter) will come through rows(), the window's
  // rows go to `out` (in the same format, already flipped, zero where the window leaves the
  // picture). RGB of 8 bits goes through vector kernels.
  void begin(const View& view, Filter filter, RowSink& out, const PixelFormat& format = {});
  // The same with the rows of source_rect(placing), columns first.
  void begin(const Placing& placing, RowSink& out, const PixelFormat& format = {});
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override;
  void restart() override;
  // Ends the picture. Throws Error(kState) if rows were missing.
  void end();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fastload
