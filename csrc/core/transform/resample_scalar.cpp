// The resize without vector instructions: the reference for the other kernels, and the path of
// machines that have none of them. The vertical loop is written so that compilers vectorise it.
#include <algorithm>

#include "transform/kernels.h"

namespace fastload {
namespace {

uint8_t clip8(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kPrecisionBits, 0, 255));
}

void horizontal_line(const Axis& axis, const uint8_t* in, uint8_t* out) {
  for (int j = 0; j < axis.count; ++j) {
    const uint8_t* pixel = in + 3 * static_cast<size_t>(axis.first[j]);
    const int32_t* weight = axis.weights.data() + j;
    int32_t r = kRounding;
    int32_t g = kRounding;
    int32_t b = kRounding;
    for (int t = 0; t < axis.taps; ++t, pixel += 3, weight += axis.stride) {
      r += pixel[0] * *weight;
      g += pixel[1] * *weight;
      b += pixel[2] * *weight;
    }
    out[3 * j] = clip8(r);
    out[3 * j + 1] = clip8(g);
    out[3 * j + 2] = clip8(b);
  }
}

void horizontal(const Axis& axis, const uint8_t* const* in, uint8_t* const* out, int rows) {
  for (int i = 0; i < rows; ++i) horizontal_line(axis, in[i], out[i]);
}

void vertical(const Axis& axis, int j, const uint8_t* const* in, size_t bytes, uint8_t* out) {
  constexpr size_t kBlock = 64;
  for (size_t start = 0; start < bytes; start += kBlock) {
    int32_t sums[kBlock];
    std::fill(sums, sums + kBlock, kRounding);
    const size_t n = std::min(kBlock, bytes - start);
    for (int t = 0; t < axis.taps; ++t) {
      const int32_t weight = axis.weights[static_cast<size_t>(t) * axis.stride + j];
      const uint8_t* line = in[t] + start;
      for (size_t i = 0; i < n; ++i) sums[i] += line[i] * weight;
    }
    for (size_t i = 0; i < n; ++i) out[start + i] = clip8(sums[i]);
  }
}

void pack_nothing(Axis&) {}

}  // namespace

const ResampleKernels kScalarResample{
    1, 1, fill_axis_scalar, pack_nothing, pack_nothing, horizontal, vertical};

}  // namespace fastload
