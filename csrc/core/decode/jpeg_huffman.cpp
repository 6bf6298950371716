#include "decode/jpeg_huffman.h"

#include <algorithm>

#include "base/error.h"

namespace fastload {
namespace {

constexpr int kBits = HuffmanTable::kLookupBits;
constexpr int kSize = 1 << kBits;
constexpr int kMaxAdvance = 31;
constexpr int kMaxRunOfFirst = 1;

// One symbol seen through the look-up window, before packing.
struct Symbol {
  uint8_t code_bits = 0;  // 0: no code of at most kBits bits
  uint8_t value_bits = 0;
  uint8_t advance = 1;
  bool block_end = false;
  bool deferred = false;
  int8_t value = 0;

  [[nodiscard]] int bits() const { return code_bits + value_bits; }
};

using Window = std::array<Symbol, kSize>;

[[noreturn]] void bad_table(const char* what) {
  throw Error(ErrorKind::kDecode, std::string("JPEG header: ") + what + ".");
}

// Figure C.1 and C.2 of T.81: codes in order of length, with libjpeg's check.
void build_canonical(const HuffmanSpec& spec, HuffmanTable& table) {
  table.symbols = spec.symbols;
  int32_t code = 0, index = 0;
  for (size_t length = 1; length <= 16; ++length) {
    const int32_t count = spec.counts[length];
    table.first_index[length] = index - code;
    code += count;
    index += count;
    table.max_code[length] = count > 0 ? code - 1 : -1;
    if (count > 0 && code >= int32_t{1} << length) bad_table("the code lengths are no prefix code");
    code <<= 1;
  }
}

// T.81, F.2.2.1 (EXTEND): `bits` bits that begin with 0 are negative.
int extend(int bits, int raw) { return raw < 1 << (bits - 1) ? raw - (1 << bits) + 1 : raw; }

Symbol describe(int code_bits, uint8_t symbol, bool is_dc) {
  Symbol s;
  s.code_bits = static_cast<uint8_t>(code_bits);
  const int run = is_dc ? 0 : symbol >> 4;
  s.value_bits = symbol & 15;
  s.advance = static_cast<uint8_t>(run + 1);
  // libjpeg takes any run without a value, except 15, for the block's end.
  if (!is_dc && s.value_bits == 0 && run != 15) {
    s.block_end = true;
    s.advance = 1;
  }
  // An int8 holds values of 7 bits; one of 8 or more is deferred, which needs bits() > kBits.
  s.deferred = s.bits() > kBits;
  if (!s.deferred && s.value_bits > 7) s.code_bits = 0;
  return s;
}

void fill_window(const HuffmanSpec& spec, bool is_dc, Window& window) {
  size_t at = 0, index = 0;
  for (int length = 1; length <= kBits; ++length) {
    for (int i = 0; i < spec.counts[static_cast<size_t>(length)]; ++i) {
      Symbol s = describe(length, spec.symbols[index++], is_dc);
      const int rest = kBits - length;
      const bool has_value = s.code_bits != 0 && !s.deferred && s.value_bits > 0;
      for (int tail = 0; tail < 1 << rest; ++tail) {
        if (has_value) {
          s.value = static_cast<int8_t>(extend(s.value_bits, tail >> (rest - s.value_bits)));
        }
        window[at++] = s;
      }
    }
  }
  std::fill(window.begin() + static_cast<std::ptrdiff_t>(at), window.end(), Symbol{});
}

uint32_t pack(int consumed, int run_of_first, int advance, int first, int last) {
  return static_cast<uint32_t>(consumed) |
         static_cast<uint32_t>(run_of_first) << HuffmanTable::kRunBit |
         static_cast<uint32_t>(advance) << 8 | static_cast<uint32_t>(first & 0xFF) << 16 |
         static_cast<uint32_t>(last & 0xFF) << 24;
}

constexpr uint32_t kDeferred = 1u << HuffmanTable::kDeferredBit;
constexpr uint32_t kBlockEnd = 1u << HuffmanTable::kBlockEndBit;

uint32_t pack_single(const Symbol& s) {
  const int last = s.deferred ? s.code_bits | s.value_bits << 4 : s.value;
  return pack(s.bits(), 0, s.advance, 0, last) | (s.deferred ? kDeferred : 0) |
         (s.block_end ? kBlockEnd : 0);
}

// The entry of `a` with `b` behind it; that of `a` alone where they do not fit together.
uint32_t pack_pair(const Symbol& a, const Symbol& b) {
  const int bits = a.bits() + b.code_bits;
  if (b.code_bits == 0 || bits > kBits) return pack_single(a);
  if (b.block_end) return pack(bits, 0, a.advance, 0, a.value) | kBlockEnd;
  const bool zero_run = a.value == 0;  // its place needs no store, so any run will do
  if (a.advance + b.advance > kMaxAdvance || (!zero_run && a.advance - 1 > kMaxRunOfFirst)) {
    return pack_single(a);
  }
  const bool deferred = bits + b.value_bits > kBits;
  const int last = deferred ? bits | b.value_bits << 4 : b.value;
  return pack(bits + b.value_bits, zero_run ? 0 : a.advance - 1, a.advance + b.advance, a.value,
              last) |
         (deferred ? kDeferred : 0);
}

uint32_t entry_at(const Window& firsts, const Window& seconds, size_t index) {
  const Symbol& a = firsts[index];
  if (a.code_bits == 0) return HuffmanTable::kEscape;
  if (a.block_end || a.deferred) return pack_single(a);
  return pack_pair(a, seconds[(index << a.bits()) & (kSize - 1)]);
}

}  // namespace

void build_tables(const HuffmanSpec& dc, const HuffmanSpec& ac, HuffmanTables& tables) {
  build_canonical(dc, tables.dc);
  build_canonical(ac, tables.ac);
  int dc_symbols = 0;
  for (const uint8_t count : dc.counts) dc_symbols += count;
  for (int i = 0; i < dc_symbols; ++i) {
    if (dc.symbols[static_cast<size_t>(i)] > 15) bad_table("a DC Huffman symbol is above 15");
  }
  Window dc_window, ac_window;
  fill_window(dc, true, dc_window);
  fill_window(ac, false, ac_window);
  for (size_t i = 0; i < kSize; ++i) {
    tables.dc.entries[i] = entry_at(dc_window, ac_window, i);
    tables.ac.entries[i] = entry_at(ac_window, ac_window, i);
  }
}

}  // namespace fastload
