// The last step: RGB rows into the sample's place in the slot, in the batch's dtype and layout.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/row_sink.h"

namespace fastload {

enum class DType : uint8_t { kUint8 = 0, kFloat16 = 1, kBfloat16 = 2, kFloat32 = 3 };

size_t dtype_size(DType dtype);  // bytes of one element

struct StoreSpec {
  DType dtype = DType::kUint8;
  bool channels_last = true;  // true: HWC in memory, false: CHW
  bool scale = false;         // divide by 255 (ToDtype(scale=True) and Normalize)
  bool normalize = false;     // (x / 255 - mean) / std per channel; implies scale
  std::array<double, 3> mean{0, 0, 0};
  std::array<double, 3> std{1, 1, 1};
};

// value = x * a[channel] + b[channel], in float32, the product rounded before the sum. The three
// channels are repeated, so that interleaved pixels need no more than vector loads.
struct StoreScale {
  static constexpr size_t kLength = 48;
  std::array<float, kLength> a{};
  std::array<float, kLength> b{};
};

// Writes height x width pixels to `out` (dtype_size * 3 * height * width bytes, borrowed). Values
// are computed in float32 as x * a + b, with a and b rounded once from double, then rounded to
// nearest even in `dtype`. The float32 value is within 2^-23 (1.5 + |mean|) / |std| of the exact
// one (without normalize: within 2^-23; without scale: exact). uint8 takes neither scale nor
// normalize (Error(kValue)).
class Store final : public RowSink {
 public:
  explicit Store(const StoreSpec& spec);
  void begin(void* out, int width, int height);
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override;
  void restart() override {}  // rows are written where they belong, again
  [[nodiscard]] const StoreSpec& spec() const { return spec_; }

 private:
  StoreSpec spec_;
  StoreScale scale_;
  void* out_ = nullptr;
  int width_ = 0;
  int height_ = 0;
};

}  // namespace fastload
