// Sequential Huffman coding of runs of blocks (T.81, F.1.2).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/kernels.h"
#include "transcode/block_lists.h"
#include "transcode/huffman_codes.h"

namespace fastload {

// An AC coefficient of a small magnitude behind up to 15 zeros is one look-up: its symbol's code
// and its own bits behind it, ready to be put.
struct SmallCodes {
  static constexpr int kMagnitude = 64;  // values from -64 to 63
  static constexpr uint32_t kThere = 1u << 5;

  // At zeros << 7 | (value + 64): bits << 6 | kThere | number of bits, at most 23; 0: no code.
  std::array<uint32_t, 16 * 2 * kMagnitude> of;
};
SmallCodes small_codes(const HuffmanCodes& ac);

// The codes of AC symbols, byte by byte, for vectors that look up 64 at a time.
struct CodeBytes {
  alignas(64) std::array<uint8_t, 256> low, high, length;
};
CodeBytes code_bytes(const HuffmanCodes& ac);

// Of one component.
struct BlockCodes {
  const HuffmanCodes* dc;
  const HuffmanCodes* ac;
  const SmallCodes* small;  // below AVX-512
  const CodeBytes* bytes;   // with AVX-512
};

// Blocks in the order of the scan, each with its codes and its DC predictor.
struct BlockRun {
  static constexpr size_t kMost = 64;
  size_t count = 0;
  std::array<ListedBlock, kMost> block;
  std::array<uint8_t, kMost> component;
};

// Bits that make no whole byte yet, and the DC coefficient of each component's last block.
struct CoderState {
  uint64_t word = 0;  // the lowest `bits` of it
  uint32_t bits = 0;  // 0 to 7
  std::array<int, 3> before{};
};

// The most bytes that a block can take: 64 symbols of 16 bits and 16 bits each. What a run writes
// is readable and writable for 8 more.
constexpr size_t kMostCodedBytes = 256;

// Writes the whole bytes of a run to `to`, without byte stuffing; returns their end. Throws
// Error(kDecode) where a code is missing.
FASTLOAD_KERNEL(uint8_t* code_blocks(const BlockRun& run, const std::array<BlockCodes, 3>& codes,
                                     CoderState& state, uint8_t* to));

}  // namespace fastload
