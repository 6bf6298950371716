// Unpacked segments to lists: loops of fixed lengths for the compiler to vectorise. Included by one
// source file for each instruction set; everything here has internal linkage.
#pragma once

#include <bit>
#include <cstring>

#include "transcode/block_lists.h"

namespace fastload {
namespace {

// A list has at most 63 values of a block; always 64 are copied.
inline void widen(const int8_t* from, int16_t* to) {
  for (size_t i = 0; i < 64; ++i) to[i] = from[i];
}
inline void join_bytes(const int8_t* low, const int8_t* high, int16_t* to) {
  for (size_t i = 0; i < 64; ++i) {
    to[i] = static_cast<int16_t>(static_cast<uint8_t>(low[i]) | high[i] * 256);
  }
}

inline void list_segment(const SegmentBlocks& blocks, size_t count, ListEnd& end) {
  std::memcpy(end.masks, blocks.masks.data(), 8 * count);
  std::memcpy(end.dc, blocks.dc.data(), 2 * count);
  size_t used = end.used;
  for (size_t i = 0; i < count; ++i) {
    *end.starts++ = used;
    // List A has a block's first values, up to the last position that it holds.
    for (size_t list = 0; list < 2; ++list) {
      const uint64_t mask = list == 0 ? blocks.lows[i] : blocks.masks[i] & ~blocks.lows[i];
      const auto values = static_cast<size_t>(std::popcount(mask));
      const size_t at = blocks.starts[list][i];
      const int8_t* const low = blocks.bytes[list].data() + at;
      int16_t* const to = end.values + used;
      if (!blocks.wide[list]) {
        widen(low, to);
      } else {
        join_bytes(low, blocks.highs[list].data() + at, to);
      }
      used += values;
    }
  }
  end.used = used;
}

}  // namespace
}  // namespace fastload
