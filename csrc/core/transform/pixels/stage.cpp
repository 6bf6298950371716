#include "transform/pixels/stage.h"

#include <cstring>

namespace fastload {

RowSink& PixelStage::begin(const PixelSpec& spec, const SampleRng& rng, int width, int height,
                           RowSink& out) {
  out_ = nullptr;
  if (spec.empty()) return out;
  spec.draw(rng, drawn_);
  if (drawn_.steps().empty()) return out;
  out_ = &out;
  canvas_.begin(width, height);
  return *this;
}

void PixelStage::rows(const uint8_t* pixels, size_t stride, int y, int count) {
  const Picture& picture = canvas_.picture();
  const size_t row = size_t{3} * static_cast<size_t>(picture.width);
  for (int i = 0; i < count; ++i) {
    std::memcpy(picture.pixels + row * static_cast<size_t>(y + i),
                pixels + stride * static_cast<size_t>(i), row);
  }
}

void PixelStage::end() {
  if (out_ == nullptr) return;
  drawn_.apply(canvas_);
  const Picture& picture = canvas_.picture();
  out_->rows(picture.pixels, size_t{3} * static_cast<size_t>(picture.width), 0, picture.height);
}

}  // namespace fastload
