#include "transform/resample_any.h"

#include <algorithm>
#include <cstring>

namespace fastload {
namespace {

uint16_t load16(const uint8_t* from, size_t i) {
  uint16_t value;
  std::memcpy(&value, from + 2 * i, 2);
  return value;
}

// Pillow's ROUND_UP, clipped.
void save16(double value, uint8_t* to, size_t i) {
  const double rounded = std::clamp(value + 0.5, 0.0, 65535.0);
  const auto result = static_cast<uint16_t>(rounded);
  std::memcpy(to + 2 * i, &result, 2);
}

uint8_t clip8(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kPrecisionBits, 0, 255));
}

// kChannels 0: any number.
template <size_t kChannels>
void line_any(const Axis& axis, size_t any, const uint8_t* in, uint8_t* out) {
  const size_t channels = kChannels == 0 ? any : kChannels;
  const auto taps = static_cast<size_t>(axis.taps);
  for (int j = 0; j < axis.count; ++j) {
    const int32_t* const weights = axis.packed.data() + taps * j;
    const uint8_t* const from = in + static_cast<size_t>(axis.first[j]) * channels;
    for (size_t c = 0; c < channels; ++c) {
      int32_t sum = kRounding;
      for (size_t t = 0; t < taps; ++t) sum += from[t * channels + c] * weights[t];
      *out++ = clip8(sum);
    }
  }
}

}  // namespace

void pack_any(Axis& axis) {
  const auto taps = static_cast<size_t>(axis.taps);
  axis.packed.reserve(taps * axis.count);
  for (int j = 0; j < axis.count; ++j) {
    for (size_t t = 0; t < taps; ++t) {
      axis.packed[taps * j + t] = axis.weights[t * axis.stride + j];
    }
  }
}

void horizontal_any(const Axis& axis, size_t channels, const uint8_t* const* in,
                    uint8_t* const* out, int rows) {
  const auto line = channels == 1   ? line_any<1>
                    : channels == 2 ? line_any<2>
                    : channels == 4 ? line_any<4>
                                    : line_any<0>;
  for (int i = 0; i < rows; ++i) line(axis, channels, in[i], out[i]);
}

void horizontal_wide(const Axis& axis, size_t channels, const uint8_t* const* in,
                     uint8_t* const* out, int rows) {
  const auto taps = static_cast<size_t>(axis.taps);
  for (int i = 0; i < rows; ++i) {
    size_t done = 0;
    for (int j = 0; j < axis.count; ++j) {
      const double* const weights = axis.exact.data() + taps * j;
      const uint8_t* const from = in[i] + static_cast<size_t>(axis.first[j]) * channels * 2;
      for (size_t c = 0; c < channels; ++c) {
        double sum = 0.0;
        for (size_t t = 0; t < taps; ++t) sum += load16(from, t * channels + c) * weights[t];
        save16(sum, out[i], done++);
      }
    }
  }
}

void vertical_wide(const Axis& axis, int j, const uint8_t* const* in, size_t values, uint8_t* out) {
  const auto taps = static_cast<size_t>(axis.taps);
  const double* const weights = axis.exact.data() + taps * j;
  constexpr size_t kBlock = 64;  // sums that stay in the first-level cache
  for (size_t begin = 0; begin < values; begin += kBlock) {
    const size_t n = std::min(kBlock, values - begin);
    double sums[kBlock] = {};
    for (size_t t = 0; t < taps; ++t) {
      for (size_t i = 0; i < n; ++i) sums[i] += load16(in[t], begin + i) * weights[t];
    }
    for (size_t i = 0; i < n; ++i) save16(sums[i], out, begin + i);
  }
}

}  // namespace fastload
