// Segments written 64 bits at a time. Values of a segment are of type uint8_t where all fit, else
// uint16_t.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "decode/coefficients/mask_codes.h"
#include "transcode/masks.h"
#include "transcode/segment_writer.h"
// Behind the others:
#include "base/highway.h"
#include "transcode/chosen.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

// Bits from the lowest on. Whether a word is full is close to random, so nothing branches on it.
class SegmentBits {
 public:
  explicit SegmentBits(uint8_t* to) : begin_(to), to_(to) {}
  // The lowest `count` bits, 0..64; the others are zero.
  [[gnu::always_inline]] void put(uint64_t bits, size_t count) {
    word_ |= bits << used_;
    std::memcpy(to_, &word_, 8);
    const uint64_t over = bits >> 1 >> (63 - used_);
    const size_t total = used_ + count;
    const uint64_t is_full = total >> 6;  // 0 or 1
    to_ += 8 * is_full;
    word_ = (word_ & (is_full - 1)) | (over & (0 - is_full));
    used_ = total & 63;
  }
  // Bytes in all; the last one is filled up with zeros.
  size_t finish() {
    std::memcpy(to_, &word_, 8);
    return static_cast<size_t>(to_ - begin_) + (used_ + 7) / 8;
  }

 private:
  uint8_t* begin_;
  uint8_t* to_;
  uint64_t word_ = 0;
  size_t used_ = 0;
};

// A list's values, and their magnitudes less 1. Read in whole groups of 64.
template <class Value>
struct PackedList {
  static constexpr size_t kRoom = kMaxSegmentBlocks * 63 + 128;
  size_t count = 0;
  alignas(64) std::array<Value, kRoom> values;
  alignas(64) std::array<Value, kRoom> less;
};

// As many ones as there are values left for a word, from the lowest on.
inline uint64_t ones(size_t left) { return left >= 64 ? ~uint64_t{0} : ~(~uint64_t{0} << left); }

inline void pack_dc(SegmentBits& bits, const SegmentShape& shape, const int16_t* dc) {
  std::array<int, kMaxSegmentRows> least{};
  std::array<size_t, kMaxSegmentRows> widths{};
  const int16_t* row_dc = dc;
  for (size_t row = 0; row < shape.rows; row_dc += shape.blocks[row++]) {
    int most = kLeastDc;
    least[row] = kMostDc;
    for (size_t i = 0; i < shape.blocks[row]; ++i) {
      least[row] = std::min<int>(least[row], row_dc[i]);
      most = std::max<int>(most, row_dc[i]);
    }
    widths[row] = static_cast<size_t>(std::bit_width(static_cast<unsigned>(most - least[row])));
    bits.put(widths[row], 4);
  }
  for (size_t row = 0; row < shape.rows; ++row) {
    bits.put(static_cast<uint64_t>(least[row]) & 0xFFF, 12);
  }
  for (size_t row = 0; row < shape.rows; ++row) {
    // Four have at most 48 bits.
    for (size_t i = 0; i < shape.blocks[row]; i += 4) {
      const size_t together = std::min<size_t>(4, shape.blocks[row] - i);
      uint64_t word = 0;
      for (size_t j = 0; j < together; ++j) {
        word |= static_cast<uint64_t>(*dc++ - least[row]) << (j * widths[row]);
      }
      bits.put(word, together * widths[row]);
    }
  }
}

// False: a mask is longer than every class. Bit k - 1 of a mask is coefficient k.
inline bool pack_fixed_masks(SegmentBits& bits, const MaskClasses& classes, size_t count,
                             const uint64_t* masks) {
  static_assert(kMaskClasses == 16);
  std::array<uint8_t, kMaxSegmentBlocks> chosen;
  bool all_fit = true;
  uint64_t word = 0;
  for (size_t block = 0; block < count; ++block) {
    const uint8_t found = classes.of[static_cast<size_t>(std::bit_width(masks[block]))];
    all_fit &= found < kMaskClasses;
    chosen[block] = found & 15;
    word |= uint64_t{chosen[block]} << (4 * (block % 16));
    if (block % 16 < 15 && block + 1 < count) continue;
    bits.put(word, 4 * (block % 16 + 1));
    word = 0;
  }
  if (!all_fit) return false;
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

// Of 64 values: which have this bit,
template <class Value>
uint64_t with_bit(const Value* values, int bit) {
  constexpr hn::ScalableTag<Value> d;
  const auto wanted = hn::Set(d, static_cast<Value>(1 << bit));
  return chosen(d, values, [=](auto some) { return hn::TestBit(some, wanted); });
}
// and which are at least so large.
template <class Value>
uint64_t at_least(const Value* values, int limit) {
  constexpr hn::ScalableTag<Value> d;
  const auto least = hn::Set(d, static_cast<Value>(limit));
  return chosen(d, values, [=](auto some) { return hn::Eq(hn::Max(some, least), some); });
}

// The planes behind the raw ones: S_1 and so on, then the bits of q, which list.less holds. The
// members of each level are a list of their own, so the planes are whole words, and fewer the
// deeper.
template <class Value>
void pack_levels(SegmentBits& bits, const PackedList<Value>& list, int deepest) {
  constexpr size_t kLevels = 8 * sizeof(Value);
  std::array<std::array<Value, PackedList<Value>::kRoom>, kLevels> members;
  std::array<size_t, kLevels> counts;
  const Value* from = list.less.data();
  size_t count = list.count;
  for (int level = 1; level <= deepest; ++level) {
    Value* const to = members[static_cast<size_t>(level)].data();
    size_t found = 0;
    for (size_t at = 0; at < count; at += 64) {
      const uint64_t inner = at_least(from + at, 1 << level) & ones(count - at);
      bits.put(inner, std::min<size_t>(64, count - at));
      compress(from + at, inner, to + found);
      found += static_cast<size_t>(std::popcount(inner));
    }
    from = to;
    counts[static_cast<size_t>(level)] = count = found;
  }
  for (size_t at = 0; at < count; at += 64) bits.put(0, std::min<size_t>(64, count - at));
  for (int bit = 0; bit < deepest; ++bit) {
    const auto level = static_cast<size_t>(bit) + 1;
    for (size_t at = 0; at < counts[level]; at += 64) {
      const uint64_t plane = with_bit(&members[level][at], bit) & ones(counts[level] - at);
      bits.put(plane, std::min<size_t>(64, counts[level] - at));
    }
  }
}

template <class Value>
void pack_list(SegmentBits& bits, PackedList<Value>& list, int rice) {
  if (list.count == 0) return;
  constexpr int kSign = 8 * sizeof(Value) - 1;
  const size_t words = (list.count + 63) / 64;
  std::fill_n(list.values.data() + list.count, words * 64 - list.count, Value{1});
  Value most = 0;
  for (size_t i = 0; i < words * 64; ++i) {
    const Value value = list.values[i];
    // Of a negative number in two's complement the magnitude less 1 is the inverse.
    const auto less = static_cast<Value>(value >> kSign != 0 ? ~value : value - 1);
    list.less[i] = less;
    most = std::max(most, less);
  }
  const auto in_word = [&](size_t w) { return std::min<size_t>(64, list.count - 64 * w); };
  for (size_t w = 0; w < words; ++w) {
    bits.put(with_bit(&list.values[64 * w], kSign), in_word(w));
  }
  for (int bit = 0; bit < rice; ++bit) {
    for (size_t w = 0; w < words; ++w) {
      bits.put(with_bit(&list.less[64 * w], bit), in_word(w));
    }
  }
  // From here on q of FORMAT.md; at least 2^j means that the value is in S_j.
  for (size_t i = 0; i < words * 64; ++i) {
    list.less[i] = static_cast<Value>((list.less[i] >> rice) + 1);
  }
  const int deepest = std::bit_width((unsigned{most} >> rice) + 1) - 1;
  pack_levels(bits, list, deepest);
}

// `values` of all blocks, one behind the other: each has those of list A first.
template <class Value>
void pack_values(SegmentBits& bits, const SegmentCoding& coding, const SegmentShape& shape,
                 const uint64_t* masks, const Value* values) {
  std::array<PackedList<Value>, 2> lists;
  size_t block = 0;
  for (size_t row = 0; row < shape.rows; ++row) {
    const auto& positions = coding.low[shape.component[row] > 0 ? 1 : 0];
    for (size_t i = 0; i < shape.blocks[row]; ++i, ++block) {
      const uint64_t mask = masks[block];
      const auto lows = static_cast<size_t>(std::popcount(mask << 1 & positions[mask_bytes(mask)]));
      const auto all = static_cast<size_t>(std::popcount(mask));
      std::memcpy(&lists[0].values[lists[0].count], values, 64 * sizeof(Value));
      std::memcpy(&lists[1].values[lists[1].count], values + lows, 64 * sizeof(Value));
      lists[0].count += lows;
      lists[1].count += all - lows;
      values += all;
    }
  }
  pack_list(bits, lists[0], coding.rice[0]);
  pack_list(bits, lists[1], coding.rice[1]);
}

using SegmentBytes = std::array<uint8_t, kMaxSegmentBlocks * 63 + 128>;

// The values in a byte each; false where they do not fit.
inline bool narrow(const ListedSegment& segment, SegmentBytes& bytes) {
  constexpr size_t kTogether = 64;
  int16_t lost = 0;
  for (size_t at = 0; at < segment.count; at += kTogether) {
    for (size_t i = at; i < at + kTogether; ++i) {
      bytes[i] = static_cast<uint8_t>(segment.values[i]);
    }
  }
  for (size_t i = 0; i < segment.count; ++i) {
    lost |= static_cast<int16_t>(segment.values[i] ^ static_cast<int8_t>(bytes[i]));
  }
  return lost == 0;
}

}  // namespace

size_t pack_segment(const SegmentCoding& coding, const MaskClasses& classes,
                    const SegmentShape& shape, const ListedSegment& segment, uint8_t* to) {
  SegmentBits bits(to);
  pack_dc(bits, shape, segment.dc);
  std::array<uint64_t, kMaxSegmentBlocks> masks;
  for (size_t block = 0; block < shape.block_count; ++block) {
    masks[block] = segment.masks[block] >> 1;
  }
  if (coding.form == CoefficientForm::kFast) {
    if (!pack_fixed_masks(bits, classes, shape.block_count, masks.data())) return 0;
  } else {
    pack_coded_masks(bits, shape, masks.data());
  }
  SegmentBytes bytes;
  if (narrow(segment, bytes)) {
    pack_values(bits, coding, shape, masks.data(), bytes.data());
  } else {
    pack_values(bits, coding, shape, masks.data(),
                     reinterpret_cast<const uint16_t*>(segment.values));
  }
  return bits.finish();
}

}  // namespace fastload::FASTLOAD_LEVEL
