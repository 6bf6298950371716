#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "transcode/block_lists.h"
// Behind the others:
#include "base/highway.h"
#include "transcode/chosen.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

constexpr hn::ScalableTag<int16_t> kWords;
constexpr hn::ScalableTag<uint16_t> kMagnitudes;
constexpr size_t kLanes = hn::MaxLanes(kWords);

void list_blocks(int16_t* blocks, size_t count, ListEnd& end) {
  size_t used = end.used;
  auto largest = hn::Zero(kMagnitudes);
  for (size_t i = 0; i < count; ++i, blocks += 64) {
    *end.dc++ = blocks[0];
    uint64_t mask = 0;
    for (size_t at = 0; at < 64; at += kLanes) {
      auto values = hn::LoadU(kWords, blocks + at);
      if (at == 0) values = hn::IfThenZeroElse(hn::FirstN(kWords, 1), values);
      largest = hn::Max(largest, hn::BitCast(kMagnitudes, hn::Abs(values)));
      mask |= uint64_t{bits_of(kWords, hn::Ne(values, hn::Zero(kWords)))} << at;
    }
    *end.masks++ = mask;
    *end.starts++ = used;
    compress(blocks, mask, end.values + used);
    used += static_cast<size_t>(std::popcount(mask));
    for (size_t at = 0; at < 64; at += kLanes) hn::StoreU(hn::Zero(kWords), kWords, blocks + at);
  }
  end.used = used;
  std::array<uint16_t, kLanes> all;
  hn::StoreU(largest, kMagnitudes, all.data());
  for (const uint16_t one : all) end.largest = std::max(end.largest, one);
}

// A list has at most 63 values of a block; always 64 are copied.
void widen(const int8_t* low, const int8_t* high, int16_t* to) {
  constexpr hn::Rebind<int8_t, decltype(kWords)> bytes;
  constexpr hn::Rebind<uint8_t, decltype(kWords)> low_bytes;
  for (size_t i = 0; i < 64; i += kLanes) {
    if (high == nullptr) {
      hn::StoreU(hn::PromoteTo(kWords, hn::LoadU(bytes, low + i)), kWords, to + i);
    } else {
      const auto upper = hn::ShiftLeft<8>(hn::PromoteTo(kWords, hn::LoadU(bytes, high + i)));
      const auto lower =
          hn::PromoteTo(kWords, hn::BitCast(low_bytes, hn::LoadU(bytes, low + i)));
      hn::StoreU(hn::Or(upper, lower), kWords, to + i);
    }
  }
}

void list_segment(const SegmentBlocks& blocks, size_t count, ListEnd& end) {
  std::memcpy(end.masks, blocks.masks.data(), 8 * count);
  std::memcpy(end.dc, blocks.dc.data(), 2 * count);
  size_t used = end.used;
  for (size_t i = 0; i < count; ++i) {
    *end.starts++ = used;
    // List A has a block's first values, up to the last position that it holds.
    for (size_t list = 0; list < 2; ++list) {
      const uint64_t mask = list == 0 ? blocks.lows[i] : blocks.masks[i] & ~blocks.lows[i];
      const size_t at = blocks.starts[list][i];
      widen(blocks.bytes[list].data() + at,
            blocks.wide[list] ? blocks.highs[list].data() + at : nullptr, end.values + used);
      used += static_cast<size_t>(std::popcount(mask));
    }
  }
  end.used = used;
}

}  // namespace

constinit const ListKernels kLists{list_blocks, list_segment};

}  // namespace fastload::FASTLOAD_LEVEL
