// What an operation on pixels is: a row of the registry and a function over a picture in cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/philox.h"

namespace fastload {

// A sample between resize and store: interleaved 8-bit RGB, row after row without gaps. As many
// readable bytes follow as RowSink::kSlack says.
struct Picture {
  uint8_t* pixels = nullptr;
  int width = 0;
  int height = 0;

  [[nodiscard]] size_t bytes() const { return size_t{3} * static_cast<size_t>(width) * height; }
};

// The random numbers of one operation for one sample. The n-th use of an operation in a plan has
// numbers of its own, whatever stands before it.
class PixelDraws {
 public:
  PixelDraws(const SampleRng& rng, uint32_t operation, uint32_t use)
      : rng_(rng),
        op_(static_cast<DrawOp>(static_cast<uint32_t>(DrawOp::kPixels) + operation)),
        use_(use) {}

  // Four fresh words; i < 256. words(0) are spent on whether the operation happens at all.
  [[nodiscard]] PhiloxWords words(uint32_t i) const { return rng_.words(op_, use_ << 8 | i); }
  // Uniform in [0, 1).
  [[nodiscard]] double uniform(uint32_t i) const {
    const PhiloxWords drawn = words(i);
    return uniform_double(drawn[0], drawn[1]);
  }

  static constexpr uint32_t kMostUses = 256;

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
  void (*apply)(std::span<const double> numbers, const PixelDraws& draws, const Picture& picture);
};

}  // namespace fastload
