// Segments written 64 bits at a time. Included by one source file for each instruction set, which
// names its operations in a type Ops; everything here has internal linkage.
//
//   Ops::extract(bits, mask)       the bits at the ones of `mask`, one after another
//   Ops::with_bit(values, bit)     of 64 values: which have this bit
//   Ops::at_least(values, limit)   of 64 values: which are at least so large
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "decode/coefficients/mask_codes.h"
#include "transcode/masks.h"
#include "transcode/segment_writer.h"

namespace fastload {
namespace {

// Bits from the lowest on.
class SegmentBits {
 public:
  explicit SegmentBits(uint8_t* to) : to_(to) {}
  // The lowest `count` bits, 0..64; the others are zero.
  void put(uint64_t bits, size_t count) {
    word_ |= bits << used_;
    if (used_ + count >= 64) {
      std::memcpy(to_ + bytes_, &word_, 8);
      bytes_ += 8;
      word_ = used_ == 0 ? 0 : bits >> (64 - used_);
      used_ = used_ + count - 64;
      if (used_ == 0) word_ = 0;
    } else {
      used_ += count;
    }
  }
  // Bytes in all; the last one is filled up with zeros.
  size_t finish() {
    std::memcpy(to_ + bytes_, &word_, 8);
    return bytes_ + (used_ + 7) / 8;
  }

 private:
  uint8_t* to_;
  size_t bytes_ = 0;
  uint64_t word_ = 0;
  size_t used_ = 0;
};

// A list's values: signs, and magnitudes less 1. Read in whole groups of 64.
struct PackedList {
  static constexpr size_t kRoom = kMaxSegmentBlocks * 63 + 64;
  size_t count = 0;
  std::array<int16_t, kRoom> values;
  std::array<int16_t, kRoom> less;  // magnitude - 1

  void add(int16_t value) { values[count++] = value; }
};

inline void pack_dc(SegmentBits& bits, const SegmentShape& shape, const int16_t* const* blocks) {
  std::array<int, kMaxSegmentRows> least{}, widths{};
  size_t block = 0;
  for (size_t row = 0; row < shape.rows; ++row) {
    int most = kLeastDc;
    least[row] = kMostDc;
    for (size_t i = 0; i < shape.blocks[row]; ++i, ++block) {
      least[row] = std::min<int>(least[row], blocks[block][0]);
      most = std::max<int>(most, blocks[block][0]);
    }
    widths[row] = std::bit_width(static_cast<unsigned>(most - least[row]));
    bits.put(static_cast<uint64_t>(widths[row]), 4);
  }
  for (size_t row = 0; row < shape.rows; ++row) {
    bits.put(static_cast<uint64_t>(least[row]) & 0xFFF, 12);
  }
  block = 0;
  for (size_t row = 0; row < shape.rows; ++row) {
    for (size_t i = 0; i < shape.blocks[row]; ++i, ++block) {
      bits.put(static_cast<uint64_t>(blocks[block][0] - least[row]),
               static_cast<size_t>(widths[row]));
    }
  }
}

// False: a mask is longer than every class.
inline bool pack_fixed_masks(SegmentBits& bits, const MaskClasses& classes, size_t count,
                             const uint64_t* masks) {
  std::array<uint8_t, kMaxSegmentBlocks> chosen;
  for (size_t block = 0; block < count; ++block) {
    chosen[block] = classes.of[static_cast<size_t>(std::bit_width(masks[block]))];
    if (chosen[block] == kMaskClasses) return false;
    bits.put(chosen[block], 4);
  }
  for (size_t block = 0; block < count; ++block) {
    bits.put(masks[block], classes.lengths[chosen[block]]);
  }
  return true;
}

inline void pack_coded_masks(SegmentBits& bits, const SegmentShape& shape, const uint64_t* masks) {
  const MaskCodes& codes = mask_codes();
  size_t block = 0;
  for (size_t row = 0; row < shape.rows; ++row) {
    int before = kFirstCount;
    for (size_t i = 0; i < shape.blocks[row]; ++i, ++block) {
      const auto count = static_cast<int>(mask_bytes(masks[block]));
      const size_t context = count_context(shape.component[row] > 0, before);
      const MaskCode& first = codes.write_counts[context][static_cast<size_t>(count)];
      bits.put(first.code, first.length);
      for (int byte = 0; byte < count; ++byte) {
        const MaskCode& code =
            codes.write_bytes[byte_context(byte, count)][masks[block] >> (8 * byte) & 0xFF];
        bits.put(code.code, code.length);
      }
      before = count;
    }
  }
}

template <class Ops>
void pack_list(SegmentBits& bits, PackedList& list, int rice) {
  if (list.count == 0) return;
  const size_t words = (list.count + 63) / 64;
  std::fill_n(list.values.begin() + static_cast<ptrdiff_t>(list.count), words * 64 - list.count,
              int16_t{1});
  int16_t most = 0;
  for (size_t i = 0; i < words * 64; ++i) {
    list.less[i] = static_cast<int16_t>(std::abs(int{list.values[i]}) - 1);
    most = std::max(most, list.less[i]);
  }
  const auto in_word = [&](size_t w) { return std::min<size_t>(64, list.count - 64 * w); };
  for (size_t w = 0; w < words; ++w) {
    bits.put(Ops::with_bit(&list.values[64 * w], 15), in_word(w));
  }
  for (int bit = 0; bit < rice; ++bit) {
    for (size_t w = 0; w < words; ++w) {
      bits.put(Ops::with_bit(&list.less[64 * w], bit), in_word(w));
    }
  }
  // From here on q of FORMAT.md; at least 2^j means that the value is in S_j.
  for (size_t i = 0; i < words * 64; ++i) {
    list.less[i] = static_cast<int16_t>((list.less[i] >> rice) + 1);
  }
  const int deepest = std::bit_width(static_cast<unsigned>(most >> rice) + 1) - 1;
  using Plane = std::array<uint64_t, PackedList::kRoom / 64 + 1>;
  std::array<Plane, 16> deep;
  for (size_t w = 0; w < words; ++w) deep[0][w] = ~uint64_t{0} >> (64 - in_word(w));
  const auto put_members = [&](uint64_t plane, uint64_t members) {
    bits.put(Ops::extract(plane, members), static_cast<size_t>(std::popcount(members)));
  };
  for (int plane = 1; plane <= deepest + 1; ++plane) {
    const auto p = static_cast<size_t>(plane);
    for (size_t w = 0; w < words; ++w) {
      const uint64_t outer = deep[p - 1][w];
      uint64_t inner = 0;
      if (plane <= deepest) inner = Ops::at_least(&list.less[64 * w], 1 << plane) & outer;
      if (plane <= deepest) deep[p][w] = inner;
      put_members(inner, outer);
    }
  }
  for (int bit = 0; bit < deepest; ++bit) {
    for (size_t w = 0; w < words; ++w) {
      put_members(Ops::with_bit(&list.less[64 * w], bit), deep[static_cast<size_t>(bit) + 1][w]);
    }
  }
}

template <class Ops>
size_t pack_segment_by(const SegmentCoding& coding, const MaskClasses& classes,
                       const SegmentShape& shape, const int16_t* const* blocks, uint8_t* to) {
  SegmentBits bits(to);
  pack_dc(bits, shape, blocks);
  std::array<uint64_t, kMaxSegmentBlocks> masks;
  for (size_t block = 0; block < shape.block_count; ++block) masks[block] = mask_of(blocks[block]);
  if (coding.form == CoefficientForm::kFast) {
    if (!pack_fixed_masks(bits, classes, shape.block_count, masks.data())) return 0;
  } else {
    pack_coded_masks(bits, shape, masks.data());
  }
  std::array<PackedList, 2> lists;
  size_t block = 0;
  for (size_t row = 0; row < shape.rows; ++row) {
    const auto& positions = coding.low[shape.component[row] > 0 ? 1 : 0];
    for (size_t i = 0; i < shape.blocks[row]; ++i, ++block) {
      const uint64_t mask = masks[block] << 1;
      const uint64_t lows = mask & positions[mask_bytes(masks[block])];
      Ops::gather(blocks[block], lows, lists[0]);
      Ops::gather(blocks[block], mask & ~lows, lists[1]);
    }
  }
  pack_list<Ops>(bits, lists[0], coding.rice[0]);
  pack_list<Ops>(bits, lists[1], coding.rice[1]);
  return bits.finish();
}

inline void gather_by_bits(const int16_t* block, uint64_t mask, PackedList& list) {
  for (; mask != 0; mask &= mask - 1) list.add(block[std::countr_zero(mask)]);
}

}  // namespace
}  // namespace fastload
