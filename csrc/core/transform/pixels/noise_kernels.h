// The loop of gaussian_noise.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/kernels.h"
#include "base/philox.h"

namespace fastload {

// A distribution of whole numbers from a word each, by Walker's alias method: the upper nine bits
// choose a cell, the other 23 whether its own number is taken or its alias.
struct NoiseTable {
  static constexpr size_t kCells = 512;
  static constexpr uint32_t kUnit = uint32_t{1} << 23;

  std::array<uint32_t, kCells> cells;  // share of the cell's own number << 9 | alias
  int offset = 0;                      // of the numbers: cell 0 stands for -offset
  bool wraps = false;                  // sums are taken modulo 256; else they end at 0 and at 255
};

// Adds a number of its own to each byte.
FASTLOAD_KERNEL(void add_noise(uint8_t* bytes, size_t count, PhiloxKey key, const NoiseTable& table));

}  // namespace fastload
