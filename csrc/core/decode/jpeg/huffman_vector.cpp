// Filling look-up tables: loops without branches over all windows, for the compiler to vectorise.
#include "decode/jpeg/huffman.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

constexpr uint32_t kBits = HuffmanTable::kLookupBits;
constexpr uint32_t kMaxAdvance = 31;  // what an entry can say
constexpr uint32_t kMaxStepBits = HuffmanTable::kMaxStepBits;

// One symbol seen through the look-up window, in bit fields: bits of its code (0: no code of at
// most kBits bits), bits of its value, coefficients advanced, EOB, and the value.
constexpr uint32_t code_bits(uint32_t symbol) { return symbol & 15; }
constexpr uint32_t value_bits(uint32_t symbol) { return symbol >> 4 & 15; }
constexpr uint32_t advance(uint32_t symbol) { return symbol >> 8 & 31; }
constexpr uint32_t is_end(uint32_t symbol) { return symbol >> 13 & 1; }
constexpr uint32_t value(uint32_t symbol) { return symbol >> 16 & 255; }

constexpr uint32_t select(bool condition, uint32_t yes, uint32_t no) {
  return condition ? yes : no;
}

// Adds the values that lie in the window. An int8 holds those of up to 7 bits; a longer one in the
// window makes the symbol an escape.
void add_values(SymbolWindow& window) {
  for (uint32_t i = 0; i < HuffmanTable::kEntries; ++i) {
    const uint32_t symbol = window[i], size = value_bits(symbol);
    const bool inside = code_bits(symbol) + size <= kBits;
    const uint32_t shift = select(inside, kBits - size, 31);
    const uint32_t raw = ((i << code_bits(symbol)) & (HuffmanTable::kEntries - 1)) >> shift;
    // T.81, F.2.2.1 (EXTEND): values that begin with 0 are negative.
    const uint32_t negative = raw - (1u << size) + 1;
    const uint32_t extended = select(2 * raw < 1u << size, negative, raw);
    const uint32_t full = symbol | (select(size == 0, 0, extended) & 255) << 16;
    window[i] = select(inside, select(size > 7, 0, full), symbol);
  }
}

constexpr uint32_t kDeferred = 1u << HuffmanTable::kDeferredBit;
constexpr uint32_t kBlockEnd = 1u << HuffmanTable::kBlockEndBit;

uint32_t single_entry(uint32_t a) {
  const uint32_t bits = code_bits(a) + value_bits(a);
  const uint32_t inside =
      bits | advance(a) << 8 | is_end(a) << HuffmanTable::kBlockEndBit | value(a) << 24;
  const uint32_t late =
      bits | kDeferred | advance(a) << 8 | (code_bits(a) | value_bits(a) << 4) << 24;
  const uint32_t entry = select(bits > kBits, late, inside);
  return select(code_bits(a) == 0 || bits > kMaxStepBits, HuffmanTable::kEscape, entry);
}

// The entry of `a` with `b` behind it; that of `a` alone where they do not fit together.
uint32_t pair_entry(uint32_t a, uint32_t b) {
  const uint32_t alone = single_entry(a);
  const uint32_t bits = code_bits(a) + value_bits(a) + code_bits(b),
                 all_bits = bits + value_bits(b);
  // A first value of 0 needs no store, so any run may precede it.
  const uint32_t zeros = select(value(a) == 0, 0, advance(a) - 1);
  const uint32_t common =
      all_bits | zeros << HuffmanTable::kRunBit | (advance(a) + advance(b)) << 8 | value(a) << 16;
  const uint32_t inside = common | value(b) << 24;
  const uint32_t late = common | kDeferred | (bits | value_bits(b) << 4) << 24;
  uint32_t entry = select(all_bits > kBits, late, inside);
  entry = select(zeros > 1, alone, entry);
  entry = select(all_bits > kMaxStepBits, alone, entry);
  entry = select(advance(a) + advance(b) > kMaxAdvance, alone, entry);
  const uint32_t ended = bits | advance(a) << 8 | kBlockEnd | value(a) << 24;
  entry = select(is_end(b) != 0, ended, entry);
  entry = select(code_bits(b) == 0, alone, entry);
  entry = select(bits > kBits, alone, entry);
  entry = select(is_end(a) != 0, alone, entry);
  return select(code_bits(a) == 0, alone, entry);
}

void fill(const SymbolWindow& firsts, const SymbolWindow& seconds, HuffmanTable& table) {
  alignas(64) SymbolWindow following;  // the symbol behind each window's first one
  for (uint32_t i = 0; i < HuffmanTable::kEntries; ++i) {
    const uint32_t bits = code_bits(firsts[i]) + value_bits(firsts[i]);
    following[i] = seconds[(i << bits) & (HuffmanTable::kEntries - 1)];
  }
  for (uint32_t i = 0; i < HuffmanTable::kEntries; ++i) {
    table.entries[i] = pair_entry(firsts[i], following[i]);
  }
}

}  // namespace

void fill_tables(SymbolWindow& dc, SymbolWindow& ac, HuffmanTables& tables) {
  add_values(dc);
  add_values(ac);
  fill(dc, ac, tables.dc);
  fill(ac, ac, tables.ac);
}

}  // namespace fastload::FASTLOAD_LEVEL
