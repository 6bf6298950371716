// What the fuzz targets share: control bytes at an input's front, checks that end the process, and
// a sink that takes a picture apart. An input is the control bytes, then whatever the target says,
// then the payload, which ends where the input ends, so that AddressSanitizer sees one byte too
// much.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/geometry.h"
#include "base/row_sink.h"
#include "decode/decode.h"

namespace fastload::fuzz {

// libFuzzer calls a finding what ends in abort().
#define FUZZ_CHECK(condition)                                                                 \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      std::fprintf(stderr, "%s:%d: FINDING: not true: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                           \
    }                                                                                         \
  } while (false)

// About a megapixel, as libjpeg-turbo's own fuzz targets.
constexpr uint64_t kMaxPixels = uint64_t{1} << 20;
constexpr int kMaxScans = 100;

inline DecodeLimits limits() {
  DecodeLimits limits;
  limits.max_pixels = kMaxPixels;
  limits.max_scans = kMaxScans;
  return limits;
}

// Takes numbers off the front; zeros once the input is used up.
class Input {
 public:
  explicit Input(Bytes bytes) : bytes_(bytes) {}

  uint8_t u8() {
    if (bytes_.empty()) return 0;
    const uint8_t value = bytes_[0];
    bytes_ = bytes_.subspan(1);
    return value;
  }
  int u16() {
    const int low = u8();
    return low | u8() << 8;
  }
  // A number in [low, high].
  int in(int low, int high) { return low + u16() % (high - low + 1); }
  bool coin() { return (u8() & 1) != 0; }
  Bytes take(size_t size) {
    const Bytes taken = bytes_.first(std::min(size, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }
  [[nodiscard]] Bytes rest() const { return bytes_; }

 private:
  Bytes bytes_;
};

// Two different instruction sets to compare, of those the machine has; the same one twice where it
// has only one. More would only make executions slower.
inline std::pair<SimdLevel, SimdLevel> take_levels(Input& in) {
  static const SimdLevel best = simd_level();
  const int pair = in.in(0, 2);
  return {pair == 2 ? SimdLevel::kScalar : std::min(SimdLevel::kAvx2, best),
          pair == 0 ? SimdLevel::kScalar : best};
}

// A rectangle inside a picture of width x height pixels.
inline Rect take_roi(Input& in, int width, int height) {
  Rect roi;
  roi.x = in.in(0, width - 1);
  roi.y = in.in(0, height - 1);
  roi.width = in.in(1, width - roi.x);
  roi.height = in.in(1, height - roi.y);
  return roi;
}

// Collects a picture's rows and checks what RowSink promises: order, extent, readable slack.
class Collector final : public RowSink {
 public:
  explicit Collector(Rect roi, size_t pixel_bytes = 3) : roi_(roi), pixel_bytes_(pixel_bytes) {}

  void rows(const uint8_t* pixels, size_t stride, int y, int count) override {
    const size_t width = static_cast<size_t>(roi_.width) * pixel_bytes_;
    FUZZ_CHECK(y == next_ && count > 0 && count <= roi_.height - y && stride >= width);
    if (pixels_.empty()) pixels_.resize(width * static_cast<size_t>(roi_.height));
    for (int i = 0; i < count; ++i) {
      std::memcpy(pixels_.data() + width * static_cast<size_t>(y + i),
                  pixels + stride * static_cast<size_t>(i), width);
    }
    const uint8_t* const behind = pixels + stride * static_cast<size_t>(count - 1) + width;
    for (size_t i = 0; i < kSlack; ++i) slack_ = behind[i];
    next_ += count;
  }
  void restart() override {
    next_ = 0;
    pixels_.clear();
  }

  [[nodiscard]] bool whole() const { return next_ == roi_.height; }
  // height * width * pixel_bytes bytes.
  [[nodiscard]] const std::vector<uint8_t>& pixels() const { return pixels_; }

 private:
  Rect roi_;
  size_t pixel_bytes_;
  int next_ = 0;
  std::vector<uint8_t> pixels_;
  volatile uint8_t slack_ = 0;
};

// Whether `part` is the rectangle `roi` of `picture`, whose rows are `width` pixels.
inline bool is_crop(const std::vector<uint8_t>& part, Rect roi, const std::vector<uint8_t>& picture,
                    int width) {
  const size_t row = static_cast<size_t>(roi.width) * 3;
  for (int y = 0; y < roi.height; ++y) {
    const size_t from =
        (static_cast<size_t>(roi.y + y) * static_cast<size_t>(width) + static_cast<size_t>(roi.x)) *
        3;
    if (std::memcmp(part.data() + row * static_cast<size_t>(y), picture.data() + from, row) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace fastload::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
