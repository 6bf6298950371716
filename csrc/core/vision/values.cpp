#include "vision/values.h"

#include <bit>
#include <cmath>
#include <string>

#include "base/error.h"

namespace fastload {
namespace {

// What a vector's lane makes of x: values_simd.h, in the same order.
float by_vector(const ValueScale& scale, size_t at, float x) {
  const float rescaled = std::fma(x, scale.high[at], x * scale.low[at]);
  const float away = rescaled - scale.mean[at];
  const float quotient = away * scale.inverse[at];
  const float rest = std::fma(-quotient, scale.std[at], away);
  return std::fma(rest, scale.inverse[at], quotient);
}

const ValueKernels& value_kernels(SimdLevel level) {
#if defined(__x86_64__)
  if (level == SimdLevel::kAvx512) return kAvx512Values;
  if (level == SimdLevel::kAvx2) return kAvx2Values;
#elif defined(__aarch64__)
  if (level == SimdLevel::kNeon) return kNeonValues;
#endif
  (void)level;
  return kScalarValues;
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
  return dtype_ == DType::kUint8 ? nullptr : value_kernels(simd_level()).stream;
}

ValueLine VisionValues::line() const {
  if (dtype_ == DType::kUint8) return copy_runs;
  const ValueKernels& kernels = value_kernels(by_vectors_ ? simd_level() : SimdLevel::kScalar);
  return dtype_ == DType::kFloat32 ? kernels.float32 : kernels.bfloat16;
}

}  // namespace fastload
