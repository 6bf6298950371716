// The loop of gaussian_noise, once per instruction set.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/cpu.h"
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
using AddNoise = void (*)(uint8_t* bytes, size_t count, PhiloxKey key, const NoiseTable& table);

AddNoise add_noise(SimdLevel level);

#if defined(__x86_64__)
void add_noise_avx2(uint8_t* bytes, size_t count, PhiloxKey key, const NoiseTable& table);
void add_noise_avx512(uint8_t* bytes, size_t count, PhiloxKey key, const NoiseTable& table);
#endif

}  // namespace fastload
