// Segments read 64 bits at a time. Part of segment_vector.cpp, which names a level's operations in a
// type Ops:
//
//   Ops::fixed_masks(...)      read_fixed_masks() or what equals it
//   Ops::lists(...)            both lists
//   Ops::deposit(bits, mask)   the lowest bits of `bits`, one after another, at the ones of `mask`
//   Ops::add_offsets(offsets, least, to)   four 16-bit offsets + least, to to[0..4)
//   Ops::copy(data, at, words, plane)      64 bits a word, one word after another
//   Ops::kBothWide                         a wide list wants the other one's high bytes, too:
//   Ops::extend(low, high)                 the high bytes of 64 values that fit into one
#pragma once

#include <array>
#include <bit>
#include <cstring>

#include "decode/coefficients/mask_codes.h"
#include "decode/coefficients/segment.h"

namespace fastload {
namespace {

static_assert(std::endian::native == std::endian::little);

// At least 57 bits from bit `at` on.
inline uint64_t word_at(const uint8_t* data, size_t at) {
  uint64_t word;
  std::memcpy(&word, data + at / 8, 8);
  return word >> (at % 8);
}
// 64 bits.
inline uint64_t whole_word_at(const uint8_t* data, size_t at) {
  return word_at(data, at) | uint64_t{data[at / 8 + 8]} << 1 << (63 - at % 8);
}
inline uint64_t lowest(uint64_t word, size_t count) {
  return word & ((uint64_t{1} << count) - 1);  // count < 64
}

// The place in a segment. Whoever reads asks has() first; up to kSegmentSlack bytes more are there.
struct BitPlace {
  const uint8_t* data;
  size_t bits;
  size_t at;
  [[nodiscard]] bool has(size_t count) const { return at + count <= bits; }
};

// Where a list's values go: their low bytes, and if it is wide the high ones.
struct ListBytes {
  int8_t* low;
  int8_t* high;
  bool is_wide;
};

// The planes of a list, one bit for each value: 64 to a word.
struct ValuePlanes {
  static constexpr size_t kWords =
      kMaxSegmentBlocks * 63 / 64 + 8;  // copy() writes eight at a time
  static constexpr int kMostDepth = 15;
  using Plane = std::array<uint64_t, kWords>;
  size_t words;
  int rice;
  int deepest;  // the last S_j with a one
  Plane sign;
  std::array<Plane, kMaxRice> raw;
  std::array<Plane, kMostDepth + 1> deep;  // [j]: S_j
  std::array<Plane, kMostDepth> low;
};

template <class Ops>
bool read_dc(BitPlace& place, const SegmentShape& shape, SegmentBlocks& blocks) {
  const uint64_t head = word_at(place.data, 0);
  place.at = 16 * shape.rows;
  if (!place.has(0)) return false;
  uint64_t minima = head >> (4 * shape.rows);
  size_t block = 0;
  for (size_t row = 0; row < shape.rows; ++row, minima >>= 12) {
    const size_t width = head >> (4 * row) & 15;
    if (width > 12 || !place.has(width * shape.blocks[row])) return false;
    const auto least = static_cast<int16_t>(static_cast<int32_t>((minima & 0xFFF) ^ 0x800) - 0x800);
    const uint64_t lanes = ((uint64_t{1} << width) - 1) * 0x0001000100010001u;
    for (size_t i = 0; i < shape.blocks[row]; i += 4) {
      const uint64_t offsets = Ops::deposit(word_at(place.data, place.at + i * width), lanes);
      Ops::add_offsets(offsets, least, &blocks.dc[block + i]);
    }
    block += shape.blocks[row];
    place.at += width * shape.blocks[row];
  }
  return true;
}

// A block's mask is known: which values are in which list, and where they begin.
struct ListEnds {
  size_t low = 0, high = 0;
  void add(const std::array<uint64_t, kMaskBytes + 1>& positions, uint64_t mask, size_t block,
           SegmentBlocks& blocks) {
    const size_t count = (static_cast<size_t>(std::bit_width(mask >> 1)) + 7) / 8;
    const uint64_t lows = mask & positions[count];
    blocks.masks[block] = mask;
    blocks.lows[block] = lows;
    blocks.starts[0][block] = static_cast<uint16_t>(low);
    blocks.starts[1][block] = static_cast<uint16_t>(high);
    const auto in_low = static_cast<size_t>(std::popcount(lows));
    low += in_low;
    high += static_cast<size_t>(std::popcount(mask)) - in_low;
  }
  void close(size_t block, SegmentBlocks& blocks) const {
    blocks.starts[0][block] = static_cast<uint16_t>(low);
    blocks.starts[1][block] = static_cast<uint16_t>(high);
  }
};

inline bool read_fixed_masks(BitPlace& place, const SegmentCoding& coding,
                             const SegmentShape& shape, SegmentBlocks& blocks) {
  if (!place.has(4 * shape.block_count)) return false;
  const size_t classes_at = place.at;
  size_t at = classes_at + 4 * shape.block_count;
  ListEnds ends;
  size_t block = 0;
  uint64_t classes = 0;
  for (size_t row = 0; row < shape.rows; ++row) {
    const auto& positions = coding.low[shape.component[row] > 0 ? 1 : 0];
    for (size_t i = 0; i < shape.blocks[row]; ++i, ++block, classes >>= 4) {
      if (block % 16 == 0) classes = whole_word_at(place.data, classes_at + 4 * block);
      const size_t length = coding.mask_lengths[classes & 15];
      if (at + length > place.bits) return false;
      const uint64_t word = whole_word_at(place.data, at);
      at += length;
      ends.add(positions, lowest(word, length) << 1, block, blocks);
    }
  }
  ends.close(block, blocks);
  place.at = at;
  return true;
}

inline bool read_coded_masks(BitPlace& place, const SegmentCoding& coding,
                             const SegmentShape& shape, SegmentBlocks& blocks) {
  const MaskCodes& codes = mask_codes();
  size_t at = place.at;
  ListEnds ends;
  size_t block = 0;
  for (size_t row = 0; row < shape.rows; ++row) {
    const bool is_chroma = shape.component[row] > 0;
    const auto& positions = coding.low[is_chroma ? 1 : 0];
    int count = kFirstCount;
    for (size_t i = 0; i < shape.blocks[row]; ++i, ++block) {
      if (at > place.bits) return false;  // a block takes less than the slack
      const auto& counts = codes.counts[count_context(is_chroma, count)];
      uint64_t word = word_at(place.data, at);
      const uint32_t first = counts[lowest(word, kCountBits)];
      count = static_cast<int>(first & 0xFF);
      word >>= first >> 8;
      at += first >> 8;
      uint64_t mask = 0;
      for (int byte = 0; byte < count; ++byte) {
        if (byte == 4) word = word_at(place.data, at);  // 7 + 4 * 10 bits are used at most
        const uint32_t entry = codes.bytes[byte_context(byte, count)][lowest(word, kByteBits)];
        mask |= uint64_t{entry & 0xFF} << (8 * byte);
        word >>= entry >> 8;
        at += entry >> 8;
      }
      if (mask >> 63 != 0) return false;
      ends.add(positions, mask << 1, block, blocks);
    }
  }
  ends.close(block, blocks);
  place.at = at;
  return place.has(0);
}

// One bit for each value of `outer`, at its places.
template <class Ops>
size_t read_plane(BitPlace& place, const ValuePlanes::Plane& outer, size_t words,
                  ValuePlanes::Plane& plane) {
  size_t at = place.at, ones = 0;
  for (size_t w = 0; w < words; ++w) {
    const uint64_t members = outer[w];
    plane[w] = Ops::deposit(whole_word_at(place.data, at), members);
    at += static_cast<size_t>(std::popcount(members));
    ones += static_cast<size_t>(std::popcount(plane[w]));
  }
  place.at = at;
  return ones;
}

// False: damaged. The list is not empty.
template <class Ops>
bool read_planes(BitPlace& place, size_t count, int rice, ValuePlanes& planes) {
  planes.words = (count + 63) / 64;
  planes.rice = rice;
  const uint64_t last = ~uint64_t{0} >> (64 * planes.words - count);
  // Planes that have a bit of every value are whole runs of bits. What their last words have behind
  // the list's end becomes values that nobody reads.
  if (!place.has(count * (2 + static_cast<size_t>(rice)))) return false;
  Ops::copy(place.data, place.at, planes.words, planes.sign.data());
  place.at += count;
  for (int bit = 0; bit < rice; ++bit, place.at += count) {
    Ops::copy(place.data, place.at, planes.words, planes.raw[static_cast<size_t>(bit)].data());
  }
  std::array<size_t, ValuePlanes::kMostDepth + 1> members;
  size_t deepest = 0;
  auto& first = planes.deep[1];
  Ops::copy(place.data, place.at, planes.words, first.data());  // S_1
  place.at += count;
  first[planes.words - 1] &= last;
  size_t ones = 0;
  for (size_t w = 0; w < planes.words; ++w) ones += static_cast<size_t>(std::popcount(first[w]));
  while (ones > 0) {  // S_2, S_3, ...
    members[++deepest] = ones;
    if (deepest + static_cast<size_t>(rice) >= ValuePlanes::kMostDepth) return false;
    if (!place.has(ones)) return false;
    ones = read_plane<Ops>(place, planes.deep[deepest], planes.words, planes.deep[deepest + 1]);
  }
  for (size_t bit = 0; bit < deepest; ++bit) {  // low_0, low_1, ...
    if (!place.has(members[bit + 1])) return false;
    read_plane<Ops>(place, planes.deep[bit + 1], planes.words, planes.low[bit]);
  }
  planes.deepest = static_cast<int>(deepest);
  return true;
}

// The largest magnitude that the planes can say, 2^(rice + deepest + 1) - 2^rice, is more than 127.
inline bool is_wide_list(const ValuePlanes& planes) { return planes.rice + planes.deepest > 6; }

template <class Ops>
bool read_lists(BitPlace& place, const SegmentCoding& coding, size_t blocks_end,
                SegmentBlocks& blocks) {
  ListBytes lists[2] = {{blocks.bytes[0].data(), blocks.highs[0].data(), false},
                        {blocks.bytes[1].data(), blocks.highs[1].data(), false}};
  const size_t counts[2] = {blocks.starts[0][blocks_end], blocks.starts[1][blocks_end]};
  if (!Ops::lists(place, counts, coding.rice, lists)) return false;
  for (size_t i = 0; i < 2; ++i) blocks.wide[i] = lists[i].is_wide;
  blocks.is_wide = blocks.wide[0] || blocks.wide[1];
  if constexpr (Ops::kBothWide) {
    for (size_t i = 0; i < 2; ++i) {
      if (!blocks.is_wide || blocks.wide[i]) continue;
      for (size_t at = 0; at < counts[i]; at += 64) {
        Ops::extend(blocks.bytes[i].data() + at, blocks.highs[i].data() + at);
      }
      blocks.wide[i] = true;
    }
  }
  return true;
}

// What comes before the lists.
template <class Ops>
bool read_head(BitPlace& place, const SegmentCoding& coding, const SegmentShape& shape,
               SegmentBlocks& blocks) {
  if (!read_dc<Ops>(place, shape, blocks)) return false;
  const bool is_fast = coding.form == CoefficientForm::kFast;
  return is_fast ? Ops::fixed_masks(place, coding, shape, blocks)
                 : read_coded_masks(place, coding, shape, blocks);
}

// Whether what is left is less than a byte of zeros.
inline bool ends_segment(const BitPlace& place) {
  const size_t left = place.bits - place.at;
  return left < 8 && lowest(word_at(place.data, place.at), left) == 0;
}

template <class Ops>
bool read_segment(const SegmentCoding& coding, const SegmentSource& source,
                  SegmentBlocks& blocks) {
  BitPlace place{source.data, source.size * 8, 0};
  return read_head<Ops>(place, coding, *source.shape, blocks) &&
         read_lists<Ops>(place, coding, source.shape->block_count, blocks) && ends_segment(place);
}

template <class Ops>
bool read_segments(const SegmentCoding& coding, const SegmentSource* sources, size_t count,
                   SegmentBlocks* blocks) {
  for (size_t i = 0; i < count; ++i) {
    if (!read_segment<Ops>(coding, sources[i], blocks[i])) return false;
  }
  return true;
}

}  // namespace
}  // namespace fastload
