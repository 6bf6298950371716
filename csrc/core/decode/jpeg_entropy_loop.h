// The Huffman decoding loop (T.81, F.2.2). Included by one source file for each instruction set;
// everything here has internal linkage, so that no linker mixes the variants up.
//
// What makes it fast: two symbols in one look-up, a block's end without a branch (the next table,
// block and position are selected), and values that exceed the look-up window put on a list instead
// of branched on.
#pragma once

#include <cstring>

#include "decode/jpeg_entropy.h"

namespace fastload {
namespace {

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
    bits |= __builtin_bswap64(word) >> (count & 63);
    next += (~count >> 3) & 7;
    count = (count & 7) | 56;
  }

  void drop(uint64_t n) {  // uses the low 6 bits of n
    bits <<= n & 63;
    count -= n;
  }

  [[nodiscard]] size_t position(const uint8_t* data) const {
    return static_cast<size_t>(next - data) * 8 - (count & 63);
  }
};

// One symbol, the slow way: codes longer than the window, a block that ends without EOB, overflow.
// Advances `k`; sets it to 64 at the block's end. False: damaged.
bool decode_symbol(BitBuffer& in, const HuffmanTable& table, uint32_t& k, int16_t* coefs,
                   const uint8_t* places) {
  in.refill();
  size_t length = 1;
  int32_t code = 0;
  for (;; ++length) {
    if (length > 16) return false;
    code = static_cast<int32_t>(in.bits >> (64 - length));
    if (code <= table.max_code[length]) break;
  }
  in.drop(length);
  const uint32_t symbol =
      table.symbols[static_cast<size_t>(code + table.first_index[length]) & 255];
  const uint32_t run = k == 0 ? 0 : symbol >> 4;
  const uint32_t size = symbol & 15;
  if (k != 0 && size == 0) {
    k = run == 15 ? k + 16 : 64;
    return k <= 64;
  }
  k += run + 1;
  if (k > 64) return false;
  if (size == 0) return true;  // a DC difference of 0
  const auto raw = static_cast<int32_t>(in.bits >> (64 - size));
  in.drop(size);
  coefs[places[k]] = static_cast<int16_t>(raw < 1 << (size - 1) ? raw - (1 << size) + 1 : raw);
  return true;
}

// Writes the values that the loop left out: the placeholder at `place` says where they lie.
void write_deferred(const DeferredValue* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const auto holder = static_cast<uint32_t>(static_cast<uint16_t>(*values[i].place));
    const uint32_t skip = holder & 15, size = (holder >> 4) & 15;
    const uint64_t bits = values[i].bits << skip;
    const auto raw = static_cast<int32_t>(bits >> (63 - size) >> 1);
    const int32_t negative = static_cast<int32_t>(~(bits >> 63)) & 1;
    *values[i].place = static_cast<int16_t>(raw - negative * ((1 << size) - 1));
  }
}

// See DecodeRun in jpeg_entropy.h.
bool decode_run(const uint8_t* data, size_t& position, const BlockTarget* block,
                const BlockTarget* end, const uint8_t* places, DeferredValue* deferred) {
  constexpr int kShift = 64 - HuffmanTable::kLookupBits;
  BitBuffer in(data, position);
  const HuffmanTable* table = block->dc;
  const HuffmanTable* ac = block->ac;
  int16_t* coefs = block->coefs;
  uint32_t k = 0;
  size_t late = 0;
  while (block != end) {
    in.refill();
    // Two steps of at most 25 bits for each refill.
    for (int step = 0; step < 2; ++step) {
      const uint32_t entry = table->entries[in.bits >> kShift];
      const uint32_t reached = k + ((entry >> 8) & 0xFF);
      uint64_t block_end = entry & HuffmanTable::kBlockEnd;
      if (__builtin_expect((reached & 64) != 0, 0)) {
        if (!decode_symbol(in, *table, k, coefs, places)) return false;
        in.refill();
        table = ac;
        if (k < 64) continue;
        ++block;
        k = 0;
        table = block->dc;
        ac = block->ac;
        coefs = block->coefs;
      } else {
        int16_t* const place = coefs + places[reached & 63];
        coefs[places[k + 1 + ((entry >> 6) & 3)]] = static_cast<int8_t>(entry >> 16);
        *place = static_cast<int8_t>(entry >> 24);
        deferred[late].bits = in.bits;
        deferred[late].place = place;
        late += (entry & HuffmanTable::kConsumedMask) > HuffmanTable::kLookupBits;
        in.drop(entry);
        table = block_end ? block[1].dc : ac;
        ac = block_end ? block[1].ac : ac;
        coefs = block_end ? block[1].coefs : coefs;
        k = block_end ? 0 : reached;
        block += block_end != 0;
      }
      if (block == end) break;
    }
  }
  position = in.position(data);
  write_deferred(deferred, late);
  return true;
}

}  // namespace
}  // namespace fastload
