#include "transform/pixels/stage.h"

#include <cstring>
#include <utility>

#include "transform/pixels/warp.h"

namespace fastload {

RowSink& PixelStage::begin(const PixelSpec& spec, const SampleRng& rng, int width, int height,
                           RowSink& out) {
  out_ = nullptr;
  if (spec.empty()) return out;
  spec.draw(rng, drawn_);
  if (drawn_.steps().empty()) return out;
  out_ = &out;
  whole_steps_ = 0;
  canvas_.begin(width, height);
  return *this;
}

RowSink& PixelStage::begin_before(const PixelSpec& spec, const SampleRng& rng, int width,
                                  int height, Rect& part, RowSink& out) {
  if (&begin(spec, rng, part.width, part.height, out) == &out) return out;
  whole_steps_ = drawn_.whole_steps();
  if (whole_steps_ == 0) return *this;
  part_ = part;
  part = {0, 0, width, height};
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
  if (whole_steps_ > 0) {
    drawn_.apply(canvas_, 0, whole_steps_);
    canvas_.crop(part_);
  }
  drawn_.apply(canvas_, whole_steps_, drawn_.steps().size());
  const Picture& picture = canvas_.picture();
  out_->rows(picture.pixels, size_t{3} * static_cast<size_t>(picture.width), 0, picture.height);
}

RowSink& FollowingStage::begin(const PixelSpec& spec, const SampleRng& rng,
                               const PixelFormat& format, int fill, int width, int height,
                               RowSink& out, std::pair<int, int> followed) {
  out_ = nullptr;
  if (spec.moving() == nullptr) return out;
  spec.draw(rng, drawn_);
  if (followed.first == 0) followed = {width, height};
  drawn_.motions(followed.first, followed.second, motions_);
  if (motions_.empty()) return out;
  if (followed != std::pair(width, height)) {
    const double x = static_cast<double>(followed.first) / width;
    const double y = static_cast<double>(followed.second) / height;
    for (Motion& motion : motions_) motion = motion.at_size(x, y);
  }
  out_ = &out;
  format_ = format;
  fill_ = fill;
  width_ = width;
  height_ = height;
  const size_t bytes =
      format.pixel_bytes() * static_cast<size_t>(width) * static_cast<size_t>(height);
  for (Buffer<uint8_t>& memory : memory_) memory.reserve(bytes + RowSink::kSlack);
  return *this;
}

void FollowingStage::rows(const uint8_t* pixels, size_t stride, int y, int count) {
  const size_t row = format_.pixel_bytes() * static_cast<size_t>(width_);
  for (int i = 0; i < count; ++i) {
    std::memcpy(memory_[0].data() + row * static_cast<size_t>(y + i),
                pixels + stride * static_cast<size_t>(i), row);
  }
}

void FollowingStage::end() {
  if (out_ == nullptr) return;
  const auto fill = static_cast<uint16_t>(fill_);  // ids have one channel
  const auto byte = static_cast<uint8_t>(fill_);
  const bool wide = format_.bits == 16;
  const auto* const pixel = wide ? reinterpret_cast<const uint8_t*>(&fill) : &byte;
  for (const Motion& motion : motions_) {
    move_nearest(motion, wide, format_.pixel_bytes(), width_, height_, memory_[0].data(), pixel,
                 memory_[1].data());
    std::swap(memory_[0], memory_[1]);
  }
  out_->rows(memory_[0].data(), format_.pixel_bytes() * static_cast<size_t>(width_), 0, height_);
}

}  // namespace fastload
