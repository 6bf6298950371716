// The Huffman decoding loop (T.81, F.2.2). Included by one source file for each instruction set;
// everything here has internal linkage, so that no linker mixes the variants up.
//
// What makes it fast: two symbols in one look-up, a block's end without a branch (the next table,
// block and position are selected), and values that exceed the look-up window put on a list instead
// of branched on.
#pragma once

#include <bit>
#include <cstring>

#include "decode/jpeg_entropy.h"

namespace fastload {
namespace {

// T.81, F.2.2.1 (EXTEND): the `size` top bits as a value, 1 <= size <= 15; it is negative if it
// begins with 0, and then one more than its two's complement with the bits above set.
int16_t extend(uint64_t bits, uint64_t size) {
  const uint64_t positive = bits >> 63;
  const uint64_t raw = bits >> ((0 - size) & 63);
  return static_cast<int16_t>(raw + ((positive - 1) & (1 - (uint64_t{1} << size))));
}

struct BitBuffer {
  uint64_t bits = 0;   // next bit on top
  uint64_t count = 0;  // valid bits, in the low 6 bits; the rest is rubbish
  const uint8_t* next = nullptr;

  explicit BitBuffer(const uint8_t* data, size_t position) : next(data + position / 8) {
    refill();
    bits <<= position & 7;
    count -= position & 7;
  }

  // At least 56 valid bits afterwards. Reads 8 bytes (see ScanBytes::kSlack).
  void refill() {
    uint64_t word;
    std::memcpy(&word, next, sizeof word);
    if constexpr (std::endian::native == std::endian::little) word = __builtin_bswap64(word);
    bits |= word >> (count & 63);
    next += (~count & 56) >> 3;
    count |= 56;
  }

  void drop(uint64_t n) {  // uses the low 6 bits of n
    bits <<= n & 63;
    count -= n;
  }

  [[nodiscard]] size_t position(const uint8_t* data) const {
    return static_cast<size_t>(next - data) * 8 - (count & 63);
  }
};

struct SlowSymbol {
  uint64_t consumed;  // bits, at most 31; 0: damaged
  uint64_t k;         // 64 at the block's end
};

// One symbol, the slow way, out of the loop's way: codes longer than the window, a block that ends
// without EOB, overflow.
[[gnu::noinline]] SlowSymbol decode_symbol(uint64_t bits, const HuffmanTable& table, uint64_t k,
                                           int16_t* coefs, const uint8_t* places) {
  // Codes of a length lie below those of greater lengths.
  const auto ahead = static_cast<uint32_t>(bits >> 48);
  size_t length = HuffmanTable::kLookupBits + 1;
  for (size_t i = HuffmanTable::kLookupBits + 1; i < 16; ++i) length += ahead >= table.limit[i];
  if (ahead < table.limit[HuffmanTable::kLookupBits]) {
    length = 1;
    while (ahead >= table.limit[length]) ++length;
  }
  if (ahead >= table.limit[16]) return {0, 0};
  const auto code = static_cast<int32_t>(ahead >> (16 - length));
  const uint64_t symbol =
      table.symbols[static_cast<size_t>(code + table.first_index[length]) & 255];
  const uint64_t size = symbol & 15, run = k == 0 ? 0 : symbol >> 4;
  const uint64_t reached = k + run + 1;
  if (size == 0) {
    if (k != 0 && run != 15) return {length, 64};
    return {reached > 64 ? 0 : length, reached};
  }
  if (reached > 64) return {0, 0};
  coefs[places[reached]] = extend(bits << length, size);
  return {length + size, reached};
}

// Writes the values that the loop left out.
void write_deferred(const DeferredValues& deferred, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const auto holder = static_cast<uint64_t>(static_cast<uint16_t>(*deferred.places[i]));
    *deferred.places[i] = extend(deferred.bits[i] << (holder & 15), holder >> 4 & 15);
  }
}

// What the loop carries from one look-up to the next.
struct RunState {
  const HuffmanTable* table;  // for the next symbol
  uint64_t block;
  uint64_t k = 0;     // next coefficient, 0..63
  uint64_t late = 0;  // deferred values
};

// Moves on behind an entry: to the next coefficient, or to the next block if the entry ends this
// one. Which of them is close to random, so it must not become a branch; compilers like to make it
// one.
[[gnu::always_inline]] inline void advance(RunState& s, const BlockTargets& targets, uint64_t entry,
                                           uint64_t reached) {
  s.table = targets.ac[s.block];
  s.k = reached;
#if defined(__x86_64__)
  asm("btl %[end_bit], %k[entry]\n\t"
      "cmovcq %[dc], %[table]\n\t"
      "cmovcq %[zero], %[k]\n\t"
      "adcq $0, %[block]\n\t"
      "btl %[late_bit], %k[entry]\n\t"
      "adcq $0, %[late]"
      : [table] "+&r"(s.table), [block] "+&r"(s.block), [k] "+&r"(s.k), [late] "+&r"(s.late)
      : [entry] "r"(entry), [end_bit] "i"(HuffmanTable::kBlockEndBit),
        [late_bit] "i"(HuffmanTable::kDeferredBit), [dc] "m"(targets.dc[s.block + 1]),
        [zero] "r"(uint64_t{0})
      : "cc");
#else
  const bool ends = (entry >> HuffmanTable::kBlockEndBit & 1) != 0;
  s.table = ends ? targets.dc[s.block + 1] : s.table;
  s.k = ends ? 0 : s.k;
  s.block += ends;
  s.late += entry >> HuffmanTable::kDeferredBit & 1;
#endif
}

// One look-up: at most 25 bits, or 31 and a refill. False: damaged.
[[gnu::always_inline]] inline bool decode_step(BitBuffer& in, RunState& s,
                                               const BlockTargets& targets, const uint8_t* places,
                                               DeferredValues& deferred) {
  const uint32_t* const at = &s.table->entries[in.bits >> (64 - HuffmanTable::kLookupBits)];
  const uint64_t entry = *at;
  const uint64_t reached = s.k + ((entry >> 8) & 0xFF);
  int16_t* const coefs = targets.coefs[s.block];
  if (__builtin_expect((reached & 64) != 0, 0)) {
    const SlowSymbol symbol = decode_symbol(in.bits, *s.table, s.k, coefs, places);
    if (symbol.consumed == 0) return false;
    in.drop(symbol.consumed);
    in.refill();
    s.block += symbol.k >> 6;
    s.k = symbol.k & 63;
    s.table = s.k == 0 ? targets.dc[s.block] : targets.ac[s.block];
    return true;
  }
  // The two values, by loads of their own: the look-up's latency leaves room for them.
  const char* const values = reinterpret_cast<const char*>(at) + 2;
  coefs[places[s.k + 1 + ((entry >> HuffmanTable::kRunBit) & 1)]] = static_cast<int8_t>(values[0]);
  int16_t* const place = coefs + places[reached];
  *place = static_cast<int8_t>(values[1]);
  deferred.bits[s.late] = in.bits;
  deferred.places[s.late] = place;
  in.drop(entry);
  advance(s, targets, entry, reached);
  return true;
}

// See DecodeRun in jpeg_entropy.h.
bool decode_run(const uint8_t* data, size_t& position, const BlockTargets& targets, size_t begin,
                size_t end, const uint8_t* places, DeferredValues& deferred) {
  BitBuffer in(data, position);
  RunState s{targets.dc[begin], begin};
  while (s.block != end) {
    in.refill();
    if (!decode_step(in, s, targets, places, deferred)) return false;
    if (s.block == end) break;
    if (!decode_step(in, s, targets, places, deferred)) return false;
  }
  position = in.position(data);
  write_deferred(deferred, s.late);
  return true;
}

}  // namespace
}  // namespace fastload
