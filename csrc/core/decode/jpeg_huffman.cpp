#include "decode/jpeg_huffman.h"

#include <algorithm>

#include "base/error.h"

namespace fastload {
namespace {

constexpr int kBits = HuffmanTable::kLookupBits;
constexpr int kSize = 1 << kBits;
constexpr int kMaxAdvance = 31;
constexpr int kMaxRunOfFirst = 3;

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

uint32_t pack(int consumed, int run_of_first, int advance, bool block_end, int first, int last) {
  return static_cast<uint32_t>(consumed) | static_cast<uint32_t>(run_of_first) << 6 |
         static_cast<uint32_t>(advance) << 8 | (block_end ? HuffmanTable::kBlockEnd : 0) |
         static_cast<uint32_t>(first & 0xFF) << 16 | static_cast<uint32_t>(last & 0xFF) << 24;
}

int last_value(const Symbol& s, int bits_before) {
  return s.deferred ? (bits_before + s.code_bits) | s.value_bits << 4 : s.value;
}

uint32_t entry_at(const Window& firsts, const Window& seconds, int index) {
  const Symbol& a = firsts[static_cast<size_t>(index)];
  if (a.code_bits == 0) return HuffmanTable::kEscape;
  const uint32_t alone = pack(a.bits(), 0, a.advance, a.block_end, 0, last_value(a, 0));
  if (a.block_end || a.deferred) return alone;
  const Symbol& b = seconds[static_cast<size_t>((index << a.bits()) & (kSize - 1))];
  if (b.code_bits == 0 || a.bits() + b.code_bits > kBits) return alone;
  if (b.block_end) return pack(a.bits() + b.code_bits, 0, a.advance, true, 0, a.value);
  const int consumed = a.bits() + b.bits();
  Symbol second = b;
  second.deferred = consumed > kBits;
  const bool zero_run = a.value == 0;  // its place needs no store, so any run will do
  if (a.advance + b.advance > kMaxAdvance || (!zero_run && a.advance - 1 > kMaxRunOfFirst))
    return alone;
  const int run = zero_run ? 0 : a.advance - 1;
  return pack(consumed, run, a.advance + b.advance, false, a.value, last_value(second, a.bits()));
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
  for (int i = 0; i < kSize; ++i) {
    tables.dc.entries[static_cast<size_t>(i)] = entry_at(dc_window, ac_window, i);
    tables.ac.entries[static_cast<size_t>(i)] = entry_at(ac_window, ac_window, i);
  }
}

}  // namespace fastload
