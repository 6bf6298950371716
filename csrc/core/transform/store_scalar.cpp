// Store without vector instructions: the reference for the other kernels.
#include <bit>
#include <cstring>

#include "transform/store_kernels.h"
#include "transform/store_scalar.h"

namespace fastload {
namespace {

template <typename T, T (*Convert)(float)>
void line(const uint8_t* in, size_t pixels, const StoreScale& scale, void* out, size_t plane) {
  T* to = static_cast<T*>(out);
  const size_t step = plane == 0 ? 3 : 1;
  const size_t channel = plane == 0 ? 1 : plane;
  for (size_t c = 0; c < 3; ++c) {
    for (size_t i = 0; i < pixels; ++i) {
      const float value = static_cast<float>(in[3 * i + c]) * scale.a[c] + scale.b[c];
      to[c * channel + step * i] = Convert(value);
    }
  }
}

float to_float32(float value) { return value; }

void line_uint8(const uint8_t* in, size_t pixels, const StoreScale&, void* out, size_t plane) {
  uint8_t* to = static_cast<uint8_t*>(out);
  if (plane == 0) {
    std::memcpy(to, in, pixels * 3);
    return;
  }
  for (size_t i = 0; i < pixels; ++i) {
    to[i] = in[3 * i];
    to[plane + i] = in[3 * i + 1];
    to[2 * plane + i] = in[3 * i + 2];
  }
}

}  // namespace

uint16_t to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

uint16_t to_float16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude >= 0x47800000) return static_cast<uint16_t>(sign | 0x7C00);  // 2^16 and above
  if (magnitude < 0x38800000) {  // below 2^-14: subnormal, one unit is 2^-24
    // Adding 0.5 leaves the value's multiple of 2^-24, rounded to nearest even, in the low bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000));
  }
  const uint32_t rebased = magnitude - (112u << 23);  // exponent bias 127 -> 15
  return static_cast<uint16_t>(sign | ((rebased + 0xFFF + ((rebased >> 13) & 1)) >> 13));
}

const StoreKernels kScalarStore{line_uint8, line<uint16_t, to_float16>,
                                line<uint16_t, to_bfloat16>, line<float, to_float32>};

}  // namespace fastload
