// What an operation on pixels is: a row of the registry and a function over a picture in cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "base/geometry.h"
#include "base/philox.h"
#include "base/row_sink.h"
#include "transform/buffer.h"
#include "transform/pixels/motion.h"

namespace fastload {

// A sample between resize and store: interleaved 8-bit RGB, row after row without gaps. As many
// readable bytes follow as RowSink::kSlack says.
struct Picture {
  uint8_t* pixels = nullptr;
  int width = 0;
  int height = 0;

  [[nodiscard]] size_t bytes() const { return size_t{3} * static_cast<size_t>(width) * height; }
};

// The picture that operations work on, and memory beside it. One per thread; keeps its memory,
// which grows with the largest picture.
class Canvas {
 public:
  // A blank picture; what was there is void.
  void begin(int width, int height) {
    picture_ = {nullptr, width, height};
    memory_[0].reserve(picture_.bytes() + RowSink::kSlack);
    picture_.pixels = memory_[0].data();
  }
  [[nodiscard]] const Picture& picture() const { return picture_; }

  // As many bytes as the picture has, with slack, whose contents are anything: where an operation
  // cannot work in place, it writes here and swaps.
  [[nodiscard]] uint8_t* spare() {
    memory_[1].reserve(picture_.bytes() + RowSink::kSlack);
    return memory_[1].data();
  }
  // What was written to spare() is the picture, and the other way round.
  void swap() {
    std::swap(memory_[0], memory_[1]);
    picture_.pixels = memory_[0].data();
  }
  // Scratch memory of an operation, aligned to 64 bytes; void at the next call.
  [[nodiscard]] uint8_t* scratch(size_t bytes) {
    scratch_.reserve(bytes);
    return scratch_.data();
  }
  // Memory that stays as it is through other operations, aligned to 64 bytes: of a mix.
  [[nodiscard]] uint8_t* kept(size_t bytes) {
    kept_.reserve(bytes);
    return kept_.data();
  }
  // A part of the picture in its place.
  void crop(const Rect& part) {
    const size_t stride = size_t{3} * static_cast<size_t>(picture_.width);
    const size_t row = size_t{3} * static_cast<size_t>(part.width);
    const uint8_t* from = picture_.pixels + stride * static_cast<size_t>(part.y) +
                          size_t{3} * static_cast<size_t>(part.x);
    uint8_t* to = picture_.pixels;
    for (int y = 0; y < part.height; ++y, from += stride, to += row) std::memmove(to, from, row);
    picture_.width = part.width;
    picture_.height = part.height;
  }
  // Lets go of memory of more than `most` bytes; the picture may be void.
  void trim(size_t most) {
    for (Buffer<uint8_t>* const buffer : {&memory_[0], &memory_[1], &scratch_, &kept_}) {
      buffer->trim(most);
    }
  }

 private:
  Picture picture_;
  Buffer<uint8_t> memory_[2];
  Buffer<uint8_t> scratch_;
  Buffer<uint8_t> kept_;
};

// The random numbers of one operation for one sample. The n-th use of an operation in a transform
// has numbers of its own, whatever stands before it.
class PixelDraws {
 public:
  PixelDraws(const SampleRng& rng, uint32_t operation, uint32_t use)
      : rng_(rng),
        op_(static_cast<DrawOp>(static_cast<uint32_t>(DrawOp::kPixels) + operation)),
        use_(use) {}

  // Four fresh words; i < kBlocks. The first are spent on whether the operation happens at all, the
  // next ones on its numbers; kOwn and up are the operation's own.
  [[nodiscard]] PhiloxWords words(uint32_t i) const { return rng_.words(op_, use_ * kBlocks + i); }
  // Uniform in [0, 1).
  [[nodiscard]] double uniform(uint32_t i) const {
    const PhiloxWords drawn = words(i);
    return uniform_double(drawn[0], drawn[1]);
  }
  // As many words as anybody wants, four by four: of a generator with a key of this use's own.
  [[nodiscard]] PhiloxKey stream() const {
    const PhiloxWords drawn = words(kStream);
    return {drawn[0], drawn[1]};
  }

  static constexpr uint32_t kBlocks = 32;
  static constexpr uint32_t kOwn = 24;
  static constexpr uint32_t kStream = kBlocks - 1;
  static constexpr uint32_t kMostUses = 0x10000 / kBlocks;

 private:
  SampleRng rng_;
  DrawOp op_;
  uint32_t use_;
};

// A row of the registry.
struct PixelOperation {
  const char* name;
  uint32_t number;  // of its draws: no other's, and never another one, or what was trained changes
  std::span<const char* const>
      parameters;  // what `numbers` are; their ranges are checked in Python
  // `numbers` are those of this sample. Pixels are the same at each SimdLevel.
  void (*apply)(std::span<const double> numbers, const PixelDraws& draws, Canvas& canvas);
  // Of one that moves pixels, where they go in a picture of that size: masks and points follow.
  Motion (*motion)(std::span<const double> numbers, const PixelDraws& draws, int width,
                   int height) = nullptr;
  // Whether a pixel behind it follows from the same pixel before it, wherever that is in a picture
  // of whatever size: of a part nothing else is needed.
  bool pointwise = false;
};

}  // namespace fastload
