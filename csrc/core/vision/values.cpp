#include "vision/values.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "base/error.h"
#include "transform/half_floats.h"

namespace fastload {
namespace {

// What a vector's lane makes of x: values_vector.cpp, in the same order.
float by_vector(const ValueScale& scale, size_t at, float x) {
  const float rescaled = std::fma(x, scale.high[at], x * scale.low[at]);
  const float away = rescaled - scale.mean[at];
  const float quotient = away * scale.inverse[at];
  const float rest = std::fma(-quotient, scale.std[at], away);
  return std::fma(rest, scale.inverse[at], quotient);
}

float to_float32(float value) { return value; }

template <typename T, T (*Convert)(float)>
void look_up(const uint8_t* in, const ValueRuns& runs, const ValueScale& scale, void* out) {
  for (size_t j = 0; j < runs.count; ++j) {
    T* to = static_cast<T*>(out) + runs.place(j);
    for (size_t line = 0; line < runs.lines; ++line, to += runs.length) {
      const uint8_t* const from = in + line * runs.line_apart + j * runs.length;
      for (size_t i = 0; i < runs.length; ++i) {
        const T value = Convert(scale.table[i % scale.channels][from[i]]);
        for (size_t copy = 0; copy < runs.copies; ++copy) to[copy * runs.copy_apart + i] = value;
      }
    }
  }
}

// Of 8 to 16 bytes, as a patch's line has, without a call.
void copy_short(const uint8_t* in, size_t length, uint8_t* to) {
  uint64_t front, back;
  std::memcpy(&front, in, sizeof(front));
  std::memcpy(&back, in + length - sizeof(back), sizeof(back));
  std::memcpy(to, &front, sizeof(front));
  std::memcpy(to + length - sizeof(back), &back, sizeof(back));
}

}  // namespace

VisionValues::VisionValues(const VisionRule& rule, DType dtype) : dtype_(dtype) {
  if (dtype != DType::kUint8 && dtype != DType::kBfloat16 && dtype != DType::kFloat32) {
    throw Error(ErrorKind::kValue, "Rows of pictures are uint8, bfloat16 or float32.");
  }
  const auto high = static_cast<float>(rule.rescale);
  const auto low = static_cast<float>(rule.rescale - static_cast<double>(high));
  for (size_t i = 0; i < scales_.size(); ++i) {
    ValueScale& scale = scales_[i];
    scale.channels = i < 3 ? 1 : 3;
    for (size_t c = 0; c < 3; ++c) scale.table[c] = table_[i < 3 ? i : c].data();
    for (size_t at = 0; at < ValueScale::kLength; ++at) {
      const size_t c = i < 3 ? i : at % 3;
      scale.high[at] = high;
      scale.low[at] = low;
      scale.mean[at] = static_cast<float>(rule.mean[c]);
      scale.std[at] = static_cast<float>(rule.std[c]);
      scale.inverse[at] = 1.0F / scale.std[at];
    }
  }
  by_vectors_ = true;
  for (size_t c = 0; c < 3; ++c) {
    const ValueScale& scale = scales_[c];
    for (size_t x = 0; x < 256; ++x) {
      const auto rescaled = static_cast<float>(static_cast<double>(x) * rule.rescale);
      const float value = (rescaled - scale.mean[0]) / scale.std[0];
      if (!std::isfinite(value)) {
        throw Error(ErrorKind::kValue, "rescale, mean and std must make finite numbers. Found: " +
                                           std::to_string(rule.rescale) + ", " +
                                           std::to_string(rule.mean[c]) + " and " +
                                           std::to_string(rule.std[c]) + ".");
      }
      table_[c][x] = value;
      const float found = by_vector(scale, 0, static_cast<float>(x));
      by_vectors_ &= std::bit_cast<uint32_t>(found) == std::bit_cast<uint32_t>(value);
    }
  }
}

Streamed VisionValues::stream() const {
  return dtype_ == DType::kUint8 ? nullptr : FASTLOAD_KERNEL_AT(simd_level(), kValues).stream;
}

ValueLine VisionValues::line() const {
  if (dtype_ == DType::kUint8) return copy_runs;
  const bool whole = dtype_ == DType::kFloat32;
  if (!by_vectors_) return whole ? look_up_float32 : look_up_bfloat16;
  const ValueKernels& kernels = FASTLOAD_KERNEL_AT(simd_level(), kValues);
  return whole ? kernels.float32 : kernels.bfloat16;
}

void look_up_float32(const uint8_t* in, const ValueRuns& runs, const ValueScale& scale, void* out) {
  look_up<float, to_float32>(in, runs, scale, out);
}

void look_up_bfloat16(const uint8_t* in, const ValueRuns& runs, const ValueScale& scale,
                      void* out) {
  look_up<uint16_t, to_bfloat16>(in, runs, scale, out);
}

void copy_runs(const uint8_t* in, const ValueRuns& runs, const ValueScale&, void* out) {
  const bool is_short = runs.length >= 8 && runs.length <= 16;
  for (size_t j = 0; j < runs.count; ++j) {
    uint8_t* first = static_cast<uint8_t*>(out) + runs.place(j);
    for (size_t line = 0; line < runs.lines; ++line, first += runs.length) {
      const uint8_t* const from = in + line * runs.line_apart + j * runs.length;
      for (size_t copy = 0; copy < runs.copies; ++copy) {
        uint8_t* const to = first + copy * runs.copy_apart;
        is_short ? copy_short(from, runs.length, to) : (void)std::memcpy(to, from, runs.length);
      }
    }
  }
}

}  // namespace fastload
