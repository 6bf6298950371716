// Bits one behind the other, without byte stuffing. Everything here has internal linkage: it is
// compiled for several instruction sets.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace fastload {
namespace {

// Bits from the highest on. Every put stores eight bytes and moves on by those that are whole: no
// branch asks whether there are any.
struct PlainBits {
  uint64_t word;
  uint32_t bits;
  uint8_t* to;

  // At most 57 bits.
  [[gnu::always_inline]] void put(uint64_t value, uint32_t count) {
    word = word << count | value;
    bits += count;
    uint64_t bytes = word << (-bits & 63);
    if constexpr (std::endian::native == std::endian::little) bytes = __builtin_bswap64(bytes);
    std::memcpy(to, &bytes, 8);
    to += bits >> 3;
    bits &= 7;
  }
};

}  // namespace
}  // namespace fastload
