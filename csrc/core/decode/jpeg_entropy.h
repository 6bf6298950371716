// Huffman decoding of runs of blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cpu.h"
#include "decode/jpeg_huffman.h"

namespace fastload {

// Where one block's coefficients go, and by which tables they are coded. A list of them, one for
// each block of the run in the order of the stream and one more to close it, steers the loop.
struct BlockTarget {
  const HuffmanTable* dc = nullptr;
  const HuffmanTable* ac = nullptr;
  int16_t* coefs = nullptr;  // 64 zeros before the run
};

// A value that the loop has passed over but not written yet.
struct DeferredValue {
  uint64_t bits;   // the stream from the entry's first bit on
  int16_t* place;  // holds where in `bits` the value lies
};

// The most that one block can take from the stream (64 symbols of 16 + 15 bits), and the list room
// it may need. Bounds of a run follow from them: the loop itself checks neither.
constexpr size_t kMaxBlockBytes = 248;
constexpr size_t kMaxBlockSteps = 65;

// Decodes the blocks [block, end) from bit `position` of `data` (unstuffed bytes) and moves
// `position` behind them. Coefficient 0 is left as the difference to its predecessor. `places[k]`
// says where the coefficient k - 1 in zig-zag order goes, k = 1..64. `*end` must be a readable
// target. `data` must be readable for (end - block) * kMaxBlockBytes + 16 bytes from the position
// on; the caller checks afterwards that the position lies inside the data. `deferred` has room for
// (end - block) * kMaxBlockSteps values. Returns false for a code that is not in the table or a run
// past the block.
using DecodeRun = bool (*)(const uint8_t* data, size_t& position, const BlockTarget* block,
                           const BlockTarget* end, const uint8_t* places, DeferredValue* deferred);

DecodeRun decode_run_for(SimdLevel level);

// The loop compiled for any CPU and for CPUs with BMI2 (every one that has AVX2).
bool decode_run_scalar(const uint8_t* data, size_t& position, const BlockTarget* block,
                       const BlockTarget* end, const uint8_t* places, DeferredValue* deferred);
bool decode_run_avx2(const uint8_t* data, size_t& position, const BlockTarget* block,
                     const BlockTarget* end, const uint8_t* places, DeferredValue* deferred);

}  // namespace fastload
