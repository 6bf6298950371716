// Which coefficients of a block are not zero.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include "base/vectors.h"
#endif

namespace fastload {
namespace {  // compiled for several instruction sets

// Bit k - 1: coefficient k of the block (64 in zig-zag order) is not zero.
inline uint64_t mask_of(const int16_t* block) {
  uint64_t zeros = 0;
#if defined(__SSE2__)
  const auto load = [block](size_t at) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + at));
  };
  for (size_t group = 0; group < 64; group += 16) {
    const __m128i bytes = _mm_packs_epi16(load(group), load(group + 8));  // saturates: not to zero
    const int equal = _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128()));
    zeros |= static_cast<uint64_t>(equal) << group;
  }
#else
  for (size_t k = 0; k < 64; ++k) zeros |= uint64_t{block[k] == 0} << k;
#endif
  return ~zeros >> 1;
}

// Bytes of such a mask up to its last nonzero one.
inline size_t mask_bytes(uint64_t mask) { return (std::bit_width(mask) + 7u) / 8; }

}  // namespace
}  // namespace fastload
