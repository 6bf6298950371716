// Antialiased separable resize, bit for bit Pillow 13's ImagingResample on uint8
// (libImaging/Resample.c): 22-bit fixed-point coefficients, a rounded 8-bit picture between the
// passes, and the vertical pass first when (in_h - out_h) > 0 and (in_h - out_h) > 2 * (in_w -
// out_w).
#pragma once

#include <memory>

#include "base/row_sink.h"
#include "transform/view.h"

namespace fastload {

// One per thread; keeps its scratch memory between pictures. Rows of source_rect(view) go in, rows
// of the view's window come out, in order, as soon as they are complete.
class Resampler final : public RowSink {
 public:
  Resampler();
  ~Resampler();
  Resampler(const Resampler&) = delete;
  Resampler& operator=(const Resampler&) = delete;

  // Starts a picture: the rows of source_rect(view, filter) will come through rows(), the window's
  // rows go to `out` (interleaved RGB, already flipped, zero where the window leaves the picture).
  void begin(const View& view, Filter filter, RowSink& out);
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override;
  void restart() override;
  // Ends the picture. Throws Error(kState) if rows were missing.
  void end();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fastload
