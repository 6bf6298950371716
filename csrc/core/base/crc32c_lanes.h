// CRC-32C by an instruction that takes eight bytes. One such instruction waits three cycles for the
// one before and could start each cycle, so three stretches of kLane bytes are worked on in turns,
// and their CRCs joined: a CRC is linear, so that of bytes with kLane zeros behind them is a linear
// function of their own, kept in four tables (Mark Adler, crc32c.c, 2013, describes the method).
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "base/bytes.h"

namespace fastload::crc32c_lanes {

inline constexpr size_t kLane = 512;  // bytes, a power of two
// The lanes' jumps are too much for the CPU's own prefetching: 110 KB that are in no cache took 20
// us without this, 6 us with it, and 12 us in one lane (AMD EPYC, 2.7 GHz).
inline constexpr size_t kPrefetch = 12 * kLane;  // bytes ahead
inline constexpr size_t kLine = 64;
using Tables = std::array<std::array<uint32_t, 256>, 4>;

using Images = std::array<uint32_t, 32>;  // what each bit of a CRC becomes

constexpr uint32_t apply(const Images& images, uint32_t c) {
  uint32_t sum = 0;
  for (size_t bit = 0; c != 0; ++bit, c >>= 1) sum ^= (c & 1) != 0 ? images[bit] : 0;
  return sum;
}

// For each of the four bytes of a CRC, what it becomes with kLane zero bytes behind.
constexpr Tables make_tables() {
  Images images{};  // one zero bit behind
  images[0] = 0x82F63B78u;
  for (size_t bit = 1; bit < 32; ++bit) images[bit] = uint32_t{1} << (bit - 1);
  for (size_t zeros = 1; zeros < 8 * kLane; zeros *= 2) {
    const Images half = images;
    for (uint32_t& image : images) image = apply(half, image);
  }
  Tables tables{};
  for (size_t byte = 0; byte < 4; ++byte) {
    for (uint32_t value = 0; value < 256; ++value) {
      tables[byte][value] = apply(images, value << (8 * byte));
    }
  }
  return tables;
}
inline constexpr Tables kTables = make_tables();

inline uint32_t behind_zeros(uint32_t c) {
  return kTables[0][c & 0xFF] ^ kTables[1][c >> 8 & 0xFF] ^ kTables[2][c >> 16 & 0xFF] ^
         kTables[3][c >> 24];
}

inline uint64_t word_at(const uint8_t* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// `Eight` and `One` are the instructions: (crc, the next bytes) -> crc.
template <auto Eight, auto One>
uint32_t run(Bytes bytes, uint32_t crc) {
  uint32_t c = ~crc;
  const uint8_t* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 3 * kLane; left -= 3 * kLane, p += 3 * kLane) {
    uint32_t second = 0, third = 0;
    for (size_t i = 0; i < kLane; i += kLine) {
      for (size_t k = 0; k < 3; ++k) __builtin_prefetch(p + kPrefetch + 3 * i + k * kLine);
      for (size_t j = i; j < i + kLine; j += 8) {
        c = Eight(c, word_at(p + j));
        second = Eight(second, word_at(p + kLane + j));
        third = Eight(third, word_at(p + 2 * kLane + j));
      }
    }
    c = behind_zeros(behind_zeros(c) ^ second) ^ third;
  }
  for (; left >= 8; left -= 8, p += 8) c = Eight(c, word_at(p));
  for (; left > 0; --left, ++p) c = One(c, *p);
  return ~c;
}

}  // namespace fastload::crc32c_lanes
