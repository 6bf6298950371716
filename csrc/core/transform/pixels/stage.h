// Operations on a sample's pixels, between resize and store: in cache, in the decoding thread.
#pragma once

#include <utility>
#include <vector>

#include "base/geometry.h"
#include "base/philox.h"
#include "base/pixel_format.h"
#include "base/row_sink.h"
#include "transform/pixels/operation.h"
#include "transform/pixels/spec.h"

namespace fastload {

// One per thread; keeps its memory, which grows with the largest picture.
class PixelStage final : public RowSink {
 public:
  // Starts a picture of width x height pixels on its way to `out`, and returns where its rows go:
  // to `out` itself, where nothing happens to them.
  RowSink& begin(const PixelSpec& spec, const SampleRng& rng, int width, int height, RowSink& out);
  // The same, before a part of the picture is cut: that alone goes to `out`. `part` becomes what is
  // needed for it: the whole picture, where an operation looks at more than a pixel.
  RowSink& begin_before(const PixelSpec& spec, const SampleRng& rng, int width, int height,
                        Rect& part, RowSink& out);
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override;
  void restart() override {}  // rows are put where they belong, again
  // All rows are there: the operations, then the rows for `out`, all at once.
  void end();
  // Lets go of memory of more than `most` bytes.
  void trim(size_t most) { canvas_.trim(most); }

 private:
  RowSink* out_ = nullptr;  // nullptr: nothing happens
  DrawnPixels drawn_;
  size_t whole_steps_ = 0;  // that are done before the picture is cut to `part_`
  Rect part_;
  Canvas canvas_;
};

// Ids, which only follow what moves pixels: by the nearest pixel. One per thread; keeps its memory,
// which grows with the largest picture.
class FollowingStage final : public RowSink {
 public:
  // As PixelStage::begin(); `fill` is what each channel of a pixel from outside has. `followed`:
  // width and height of the picture that is moved, where that is another one.
  RowSink& begin(const PixelSpec& spec, const SampleRng& rng, const PixelFormat& format, int fill,
                 int width, int height, RowSink& out, std::pair<int, int> followed = {});
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override;
  void restart() override {}
  void end();
  void trim(size_t most) {
    for (Buffer<uint8_t>& memory : memory_) memory.trim(most);
  }

 private:
  RowSink* out_ = nullptr;
  DrawnPixels drawn_;
  std::vector<Motion> motions_;
  PixelFormat format_;
  int fill_ = 0, width_ = 0, height_ = 0;
  Buffer<uint8_t> memory_[2];
};

}  // namespace fastload
