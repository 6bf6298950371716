// Huffman decoding of runs of blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/kernels.h"
#include "decode/jpeg/huffman.h"

namespace fastload {

// The most that one block can take from the stream (64 symbols of 16 + 15 bits), and the look-ups
// it can need. Bounds of a run follow from them: the loop itself checks neither.
constexpr size_t kMaxBlockBytes = 248;
constexpr size_t kMaxBlockSteps = 65;
constexpr size_t kMaxRunBlocks = 64;

// Values that the loop has passed over but not written yet: the stream from the entry's first bit
// on, and the coefficient, which holds where in those bits its value lies.
struct DeferredValues {
  std::array<uint64_t, kMaxRunBlocks * kMaxBlockSteps> bits;
  std::array<int16_t*, kMaxRunBlocks * kMaxBlockSteps> places;
};

// By which tables blocks are coded and where their coefficients go, in the order of the stream. One
// list for each, so that one index steers the loop; and its list of deferred values, so that one
// register addresses all.
struct BlockTargets {
  static constexpr size_t kMax = 192;
  std::array<const HuffmanTable*, kMax + 1> dc;
  std::array<const HuffmanTable*, kMax + 1> ac;
  std::array<int16_t*, kMax + 1> coefs;  // 64 zeros each before the run
  DeferredValues deferred;

  void set(size_t block, const HuffmanTables& tables, int16_t* at) {
    dc[block] = &tables.dc;
    ac[block] = &tables.ac;
    coefs[block] = at;
  }
};

// Where the coefficients of a block go: [k] for coefficient k - 1 in zig-zag order, k = 1..64. From
// 128 on the same again, for positions that carry the block end's flag. Aligned to its size: the
// loop keeps addresses of it, whose low bits are k.
class CoefPlaces {
 public:
  void set(int k, int place) {
    places_[static_cast<size_t>(k)] = static_cast<uint8_t>(place);
    places_[static_cast<size_t>(k + 128)] = static_cast<uint8_t>(place);
  }
  [[nodiscard]] const uint8_t* data() const { return places_.data(); }

 private:
  alignas(256) std::array<uint8_t, 256> places_{};
};

// Decodes the blocks [begin, end), at most kMaxRunBlocks, from bit `position` of `data` (unstuffed
// bytes) and moves `position` behind them. Coefficient 0 is left as the difference to its
// predecessor. `places` is a CoefPlaces's data(). targets.dc[end] is used and put back. `data`
// must be readable for (end - begin) * kMaxBlockBytes + 16 bytes from the position on; the caller
// checks afterwards that the position lies inside the data. Returns false for a code that is not in
// the table or a run past the block; `position` is then that code's.
using DecodeRun = bool (*)(const uint8_t* data, size_t& position, BlockTargets& targets,
                           size_t begin, size_t end, const uint8_t* places);

FASTLOAD_KERNEL(bool decode_run(const uint8_t* data, size_t& position, BlockTargets& targets,
                                size_t begin, size_t end, const uint8_t* places));

}  // namespace fastload
