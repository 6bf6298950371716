// The last step: rows into the sample's place in the slot, in the batch's dtype and layout.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/pixel_format.h"
#include "base/row_sink.h"
#include "transform/erase.h"

namespace fastload {

// The first four are what RGB pictures of 8 bits are stored as by vector kernels.
enum class DType : uint8_t {
  kUint8 = 0,
  kFloat16 = 1,
  kBfloat16 = 2,
  kFloat32 = 3,
  kUint16 = 4,
  kInt32 = 5,
};

size_t dtype_size(DType dtype);  // bytes of one element

struct StoreSpec {
  DType dtype = DType::kUint8;
  bool channels_last = true;  // true: HWC in memory, false: CHW
  bool scale = false;         // divide by 255, or 65535 of 16 bits (ToDtype(scale=True), Normalize)
  bool normalize = false;     // (x / 255 - mean) / std per channel; implies scale
  std::vector<double> mean;   // normalize: one for each channel
  std::vector<double> std;
  EraseSpec erase;  // of the stored picture, by Cutter
};

// Where a picture's pixels go: each row is dense, rows lie `row_bytes` apart, and without
// channels_last the channels `plane_bytes`. 0: no gap, as in a tensor of the picture's size.
struct StorePlace {
  void* data = nullptr;
  size_t row_bytes = 0;
  size_t plane_bytes = 0;
};

// value = x * a + b of one channel, each rounded once from double.
struct ChannelScale {
  float a;
  float b;
};

// One for each channel. Throws Error(kValue) where values of that format cannot be stored so:
// integers take neither scale nor normalize and no more bits than they have, 16 bits unscaled leave
// float16's range; for a mean or std that is missing, not finite or 0; for ids of any other dtype
// than uint8, uint16 and int32.
std::vector<ChannelScale> channel_scales(const StoreSpec& spec, const PixelFormat& format);

// value = x * a[channel] + b[channel], in float32, the product rounded before the sum. The three
// channels are repeated, so that interleaved pixels need no more than vector loads.
struct StoreScale {
  static constexpr size_t kLength = 48;
  std::array<float, kLength> a{};
  std::array<float, kLength> b{};
};

// RGB of 8 bits as one of the first four dtypes. Writes height x width pixels to `out`
// (dtype_size * 3 * height * width bytes, borrowed), or to a place with gaps. Values
// are computed in float32 as x * a + b, with a and b rounded once from double, then rounded to
// nearest even in `dtype`. The float32 value is within 2^-23 (1.5 + |mean|) / |std| of the exact
// one (without normalize: within 2^-23; without scale: exact). uint8 takes neither scale nor
// normalize (Error(kValue)).
class Store final : public RowSink {
 public:
  explicit Store(const StoreSpec& spec);
  void begin(void* out, int width, int height) { begin(StorePlace{out}, width, height); }
  void begin(const StorePlace& place, int width, int height);
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override;
  void restart() override {}  // rows are written where they belong, again
  [[nodiscard]] const StoreSpec& spec() const { return spec_; }

 private:
  StoreSpec spec_;
  StoreScale scale_;
  StorePlace place_;
  int width_ = 0;
  int height_ = 0;
};

// `place` with its strides filled in for a picture of that size. Throws Error(kValue) for strides
// that are no multiples of an element.
StorePlace dense_place(StorePlace place, const StoreSpec& spec, size_t channels, int width,
                       int height);

}  // namespace fastload
