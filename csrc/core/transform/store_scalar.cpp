// Store without vector instructions: the reference for the other kernels.
#include "transform/store_scalar.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "transform/store_kernels.h"

namespace fastload {

uint16_t to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

uint16_t to_float16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  const uint32_t rebased = magnitude - (112u << 23);  // exponent bias 127 -> 15
  const uint32_t normal = (rebased + 0xFFF + ((rebased >> 13) & 1)) >> 13;
  // Below 2^-14: adding 0.5 leaves the multiple of 2^-24, rounded to nearest even, in the low bits.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  const uint32_t small = std::bit_cast<uint32_t>(shifted) - 0x3F000000;
  const uint32_t finite = magnitude < 0x38800000 ? small : normal;
  const uint32_t half = magnitude >= 0x47800000 ? 0x7C00 : finite;  // 2^16 and above: infinity
  return static_cast<uint16_t>(((bits >> 16) & 0x8000) | half);
}

namespace {

// Blocks of fixed length, so that compilers vectorise the loops.
template <typename T, T (*Convert)(float)>
void interleaved(const uint8_t* in, size_t values, const StoreScale& scale, T* to) {
  constexpr size_t kBlock = StoreScale::kLength;
  for (size_t start = 0; start < values; start += kBlock) {
    const size_t n = std::min(kBlock, values - start);
    float block[kBlock];
    for (size_t i = 0; i < n; ++i) {
      block[i] = static_cast<float>(in[start + i]) * scale.a[i] + scale.b[i];
    }
    for (size_t i = 0; i < n; ++i) to[start + i] = Convert(block[i]);
  }
}

template <typename T, T (*Convert)(float)>
void planar(const uint8_t* in, size_t pixels, const StoreScale& scale, T* to, size_t plane) {
  for (size_t c = 0; c < 3; ++c) {
    for (size_t i = 0; i < pixels; ++i) {
      const float value = static_cast<float>(in[3 * i + c]) * scale.a[c] + scale.b[c];
      to[c * plane + i] = Convert(value);
    }
  }
}

template <typename T, T (*Convert)(float)>
void line(const uint8_t* in, size_t pixels, const StoreScale& scale, void* out, size_t plane) {
  T* to = static_cast<T*>(out);
  plane == 0 ? interleaved<T, Convert>(in, 3 * pixels, scale, to)
             : planar<T, Convert>(in, pixels, scale, to, plane);
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

const StoreKernels kScalarStore{line_uint8, line<uint16_t, to_float16>, line<uint16_t, to_bfloat16>,
                                line<float, to_float32>};

}  // namespace fastload
