// Which coefficients of a block are not zero.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace fastload {
namespace {  // compiled for several instruction sets

// Bit k - 1: coefficient k of the block (64 in zig-zag order) is not zero.
inline uint64_t mask_of(const int16_t* block) {
  // Eight at a time: compilers make one comparison of each inner loop.
  uint64_t mask = 0;
  for (size_t group = 0; group < 64; group += 8) {
    uint64_t bits = 0;
    for (size_t i = 0; i < 8; ++i) bits |= uint64_t{block[group + i] != 0} << i;
    mask |= bits << group;
  }
  return mask >> 1;
}

// Bytes of such a mask up to its last nonzero one.
inline size_t mask_bytes(uint64_t mask) { return (std::bit_width(mask) + 7u) / 8; }

}  // namespace
}  // namespace fastload
