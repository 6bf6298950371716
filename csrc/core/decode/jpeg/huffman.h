// Huffman tables for decoding two symbols with their values in one look-up.
//
// The next kLookupBits bits of the stream select a 32-bit entry that describes one symbol, or two
// where both codes and the first value fit into those bits:
//
//   bits  0..4   stream bits consumed, values included: at most kMaxStepBits
//   bit   6      kDeferredBit: the last value is not in the entry, see below
//   bit   7      kRunBit: the first of two coefficients follows a zero
//   bits  8..12  coefficients advanced, zeros included
//   bit  14      kEscape: no such short code; the symbol is decoded the slow way
//   bit  15      kBlockEndBit: the last symbol is EOB
//   bits 16..23  first coefficient (signed); 0 where there is only one
//   bits 24..31  last coefficient (signed)
//
// A last value that does not fit is *deferred*: the entry consumes its bits, and the last
// coefficient holds where it lies (kLookupBits bits or fewer from the start: low nibble) and its
// length (high nibble).
#pragma once

#include <array>
#include <cstdint>

#include "base/kernels.h"
#include "decode/jpeg/parser.h"

namespace fastload {

struct HuffmanTable {
  static constexpr int kLookupBits = 10;
  static constexpr uint32_t kEntries = 1u << kLookupBits;
  // Longer symbols (long codes of large values) are escapes, so that the bit buffer lasts for three
  // look-ups.
  static constexpr uint32_t kMaxStepBits = 18;
  static constexpr int kDeferredBit = 6;
  static constexpr int kRunBit = 7;
  static constexpr uint32_t kEscape = 1u << 14;
  static constexpr int kBlockEndBit = 15;

  // First member: the decoding loop handles tables by their entries' address.
  alignas(64) std::array<uint32_t, kEntries> entries;

  // Canonical decoding, one length after the other (T.81, F.2.2.3).
  std::array<uint32_t, 17>
      limit;  // the stream's next 16 bits are below it: a code of at most this length
  std::array<int32_t, 17> first_index;  // index of symbol = code + first_index[length]
  std::array<uint8_t, 256> symbols;
};

// The pair of tables of one component.
struct HuffmanTables {
  HuffmanTable dc;
  HuffmanTable ac;
};

// Builds both. Throws Error(kDecode) for lengths that are no prefix code (libjpeg's rule: no code
// of all ones) and for DC symbols above 15.
void build_tables(const HuffmanSpec& dc, const HuffmanSpec& ac, SimdLevel level,
                  HuffmanTables& tables);

// The symbol that each window of the stream begins with (see huffman_vector.cpp), and the function
// that joins two of them to entries.
using SymbolWindow = std::array<uint32_t, HuffmanTable::kEntries>;
FASTLOAD_KERNEL(void fill_tables(SymbolWindow& dc, SymbolWindow& ac, HuffmanTables& tables));

}  // namespace fastload
