// float32 to the 16-bit formats, rounded to nearest even. Each source file has a copy of its own:
// one that was compiled for a higher level must not stand in.
#pragma once

#include <bit>
#include <cstdint>

namespace fastload {

// The upper half of binary32. Not for NaN.
static inline uint16_t to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// IEEE binary16; overflow gives infinity. Not for NaN.
static inline uint16_t to_float16(float value) {
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

}  // namespace fastload
