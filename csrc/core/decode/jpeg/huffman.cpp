#include "decode/jpeg/huffman.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace fastload {
namespace {

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
    table.limit[length] = static_cast<uint32_t>(code) << (16 - length);
    if (count > 0 && code >= int32_t{1} << length) bad_table("the code lengths are no prefix code");
    code <<= 1;
  }
}

uint32_t describe(uint32_t code_bits, uint32_t symbol, bool is_dc) {
  const uint32_t run = is_dc ? 0 : symbol >> 4, size = symbol & 15;
  // libjpeg takes any run without a value, except 15, for the block's end.
  const bool end = !is_dc && size == 0 && run != 15;
  return code_bits | size << 4 | (end ? 1 : run + 1) << 8 | static_cast<uint32_t>(end) << 13;
}

// For each window the symbol it begins with. `spec` has passed build_canonical().
void fill_window(const HuffmanSpec& spec, bool is_dc, SymbolWindow& window) {
  uint32_t* at = window.data();
  size_t index = 0;
  for (uint32_t length = 1; length <= HuffmanTable::kLookupBits; ++length) {
    for (int i = 0; i < spec.counts[length]; ++i) {
      const uint32_t symbol = describe(length, spec.symbols[index++], is_dc);
      at = std::fill_n(at, HuffmanTable::kEntries >> length, symbol);
    }
  }
  std::fill(at, window.data() + window.size(), 0);
}

}  // namespace

void build_tables(const HuffmanSpec& dc, const HuffmanSpec& ac, SimdLevel level,
                  HuffmanTables& tables) {
  build_canonical(dc, tables.dc);
  build_canonical(ac, tables.ac);
  size_t dc_symbols = 0;
  for (const uint8_t count : dc.counts) dc_symbols += count;
  for (size_t i = 0; i < dc_symbols; ++i) {
    if (dc.symbols[i] > 15) bad_table("a DC Huffman symbol is above 15");
  }
  alignas(64) SymbolWindow dc_window, ac_window;
  fill_window(dc, true, dc_window);
  fill_window(ac, false, ac_window);
  FASTLOAD_KERNEL_AT(level, fill_tables)(dc_window, ac_window, tables);
}

}  // namespace fastload
