// The last step: chooses the kernel and the place of each row.
#include "transform/store.h"

#include <cmath>
#include <string>

#include "base/error.h"
#include "transform/store_kernels.h"

namespace fastload {

size_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
      return 1;
    case DType::kFloat16:
    case DType::kBfloat16:
      return 2;
    case DType::kFloat32:
      return 4;
  }
  return 0;
}

const StoreKernels& store_kernels(SimdLevel level) {
#if defined(__x86_64__)
  if (level == SimdLevel::kAvx512) return kAvx512Store;
  if (level == SimdLevel::kAvx2) return kAvx2Store;
#elif defined(__aarch64__)
  if (level == SimdLevel::kNeon) return kNeonStore;
#endif
  (void)level;
  return kScalarStore;
}

Store::Store(const StoreSpec& spec) : spec_(spec) {
  if (spec.dtype == DType::kUint8 && (spec.scale || spec.normalize)) {
    throw Error(ErrorKind::kValue,
                "uint8 takes neither scale nor normalize. Choose float16, bfloat16 or float32.");
  }
  for (size_t c = 0; c < 3; ++c) {
    const double mean = spec.normalize ? spec.mean[c] : 0.0;
    const double std = spec.normalize ? spec.std[c] : 1.0;
    const double range = spec.scale || spec.normalize ? 255.0 : 1.0;
    scale_.a[c] = static_cast<float>(1.0 / (range * std));
    scale_.b[c] = static_cast<float>(-mean / std);
    if (!std::isfinite(scale_.a[c]) || !std::isfinite(scale_.b[c])) {
      throw Error(ErrorKind::kValue, "mean must be finite, std finite and not 0. Found: mean " +
                                         std::to_string(mean) + ", std " + std::to_string(std) +
                                         " for channel " + std::to_string(c) + ".");
    }
  }
  for (size_t i = 3; i < StoreScale::kLength; ++i) {
    scale_.a[i] = scale_.a[i - 3];
    scale_.b[i] = scale_.b[i - 3];
  }
}

void Store::begin(void* out, int width, int height) {
  out_ = out;
  width_ = width;
  height_ = height;
}

void Store::rows(const uint8_t* pixels, size_t stride, int y, int count) {
  if (out_ == nullptr || y < 0 || count < 0 || count > height_ - y) {
    throw Error(ErrorKind::kState, "Rows must be in [0, " + std::to_string(height_) +
                                       "). Found: " + std::to_string(count) + " rows from " +
                                       std::to_string(y) + ".");
  }
  const StoreLine line = store_kernels(simd_level())[static_cast<size_t>(spec_.dtype)];
  const size_t width = static_cast<size_t>(width_);
  const size_t plane = spec_.channels_last ? 0 : width * static_cast<size_t>(height_);
  const size_t row_elements = spec_.channels_last ? 3 * width : width;
  auto* to = static_cast<uint8_t*>(out_) + dtype_size(spec_.dtype) * row_elements * y;
  for (int i = 0; i < count; ++i) {
    line(pixels + stride * i, width, scale_, to, plane);
    to += dtype_size(spec_.dtype) * row_elements;
  }
}

}  // namespace fastload
