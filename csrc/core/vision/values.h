// What a byte of a picture becomes: a table of 3 x 256 numbers, one column for each channel, by
// what transformers' classes that work with Pillow do, rounding by rounding:
// r = float32(float64(x) * rescale), then (r - float32(mean)) / float32(std) in float32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/kernels.h"
#include "transform/store.h"
#include "vision/rule.h"

namespace fastload {

// Where the runs of one or more lines lie. A run is `length` bytes one behind the other, which stay
// so; run j of the first line begins at element ((j / merge) * merge * merge + j % merge) * apart,
// those of further lines behind it, and all is there `copies` times, copy_apart elements apart.
struct ValueRuns {
  size_t length = 0;
  size_t count = 0;
  size_t lines = 1;
  size_t line_apart = 0;  // bytes from a line to the next
  size_t merge = 1;
  size_t apart = 0;
  size_t copies = 1;
  size_t copy_apart = 0;
  [[nodiscard]] size_t place(size_t j) const {
    return ((j / merge) * merge * merge + j % merge) * apart;
  }
};

// The numbers of one channel, or of three in turn, as kernels take them: the table, and constants
// by which vectors make the same numbers (values_vector.cpp).
struct ValueScale {
  static constexpr size_t kLength = 18;  // a vector of 16 lanes, from any channel on
  size_t channels = 1;                   // 1, or 3 in turn
  std::array<const float*, 3> table{};   // 256 numbers each
  std::array<float, kLength> high{}, low{}, mean{}, std{}, inverse{};
};

// Reads at most RowSink::kSlack bytes behind each line's runs, writes their elements only.
using ValueLine = void (*)(const uint8_t* in, const ValueRuns& runs, const ValueScale& scale,
                           void* out);

// Copies bytes past the caches, where there are such stores: what is read by others, much later,
// need not be read before it is written, nor push out what is needed now. A locked instruction, as
// at a batch's end, orders them before what follows.
using Streamed = void (*)(const uint8_t* from, size_t bytes, uint8_t* to);

class VisionValues {
 public:
  // float32 or bfloat16, which is that rounded to nearest even, or uint8: the bytes themselves.
  // Throws Error(kValue) for another dtype and for numbers that are not finite.
  VisionValues(const VisionRule& rule, DType dtype);
  VisionValues(const VisionValues&) = delete;
  VisionValues& operator=(const VisionValues&) = delete;

  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const std::array<float, 256>& table(size_t channel) const {
    return table_[channel];
  }
  // Of a plane's bytes, and of three channels in turn.
  [[nodiscard]] const ValueScale& channel(size_t c) const { return scales_[c]; }
  [[nodiscard]] const ValueScale& interleaved() const { return scales_[3]; }
  // The kernel for this machine and these numbers.
  [[nodiscard]] ValueLine line() const;
  // How numbers leave; nullptr for bytes, which are few.
  [[nodiscard]] Streamed stream() const;
  // Whether vectors make all numbers of the table; else they are looked up.
  [[nodiscard]] bool by_vectors() const { return by_vectors_; }

 private:
  DType dtype_;
  std::array<std::array<float, 256>, 3> table_{};
  std::array<ValueScale, 4> scales_;
  bool by_vectors_ = false;
};

// The kernels, by dtype: float32 and bfloat16. Bytes need no others.
struct ValueKernels {
  ValueLine float32, bfloat16;
  Streamed stream;
};
FASTLOAD_KERNEL(extern const ValueKernels kValues);
// The table, byte by byte.
void look_up_float32(const uint8_t* in, const ValueRuns& runs, const ValueScale& scale, void* out);
void look_up_bfloat16(const uint8_t* in, const ValueRuns& runs, const ValueScale& scale, void* out);
void copy_runs(const uint8_t* in, const ValueRuns& runs, const ValueScale& scale, void* out);

}  // namespace fastload
