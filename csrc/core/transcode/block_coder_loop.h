// The loop of block_coder.h. Included by one source file for each instruction set; everything here
// has internal linkage.
#pragma once

#include <bit>

#include "transcode/block_coder.h"
#include "transcode/plain_bits.h"

namespace fastload {
namespace {

inline void put_code(PlainBits& out, const HuffmanCodes& codes, int symbol, Category value) {
  const HuffmanCodes::Code code = codes.of[static_cast<size_t>(symbol)];
  if (code.length == 0) [[unlikely]]
    throw_no_code();
  out.put(uint64_t{code.code} << value.size | value.bits,
          static_cast<uint32_t>(code.length + value.size));
}

// What small_codes() does not hold.
[[gnu::noinline]] PlainBits put_large(PlainBits out, const HuffmanCodes& codes, uint32_t zeros,
                                      int value) {
  for (; zeros > 15; zeros -= 16) put_code(out, codes, 0xF0, {0, 0});
  const Category ac = category(value);
  put_code(out, codes, static_cast<int>(zeros << 4) | ac.size, ac);
  return out;
}

uint8_t* code_blocks(const BlockRun& run, const std::array<BlockCodes, 3>& all, CoderState& state,
                     uint8_t* to) {
  PlainBits out{state.word, state.bits, to};
  uint32_t there = SmallCodes::kThere;
  for (size_t i = 0; i < run.count; ++i) {
    const ListedBlock& block = run.block[i];
    const BlockCodes& codes = all[run.component[i]];
    int& before = state.before[run.component[i]];
    const Category dc = category(block.dc - before);
    before = block.dc;
    put_code(out, *codes.dc, dc.size, dc);
    const uint32_t* const small = codes.small->of.data();
    uint32_t next = 0;  // the coefficient behind the last one, less 1
    const int16_t* values = block.values;
    for (uint64_t left = block.mask >> 1; left != 0; left &= left - 1) {
      const auto k = static_cast<uint32_t>(std::countr_zero(left));
      const uint32_t zeros = k - next;
      const int value = *values++;
      const auto column = static_cast<uint32_t>(value + SmallCodes::kMagnitude);
      next = k + 1;
      if ((column | zeros << 3) >= 128) [[unlikely]] {
        out = put_large(out, *codes.ac, zeros, value);
        continue;
      }
      const uint32_t code = small[zeros << 7 | column];
      there &= code;
      out.put(code >> 6, code & 31);
    }
    if (next < 63) put_code(out, *codes.ac, 0, {0, 0});
  }
  if (there == 0) throw_no_code();
  state.word = out.word & ((1u << out.bits) - 1);
  state.bits = out.bits;
  return out.to;
}

}  // namespace
}  // namespace fastload
