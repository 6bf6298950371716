// Segments read by any CPU, 64 bits at a time.
#include "decode/coefficients/segment_reader.h"

namespace fastload {
namespace {

struct WordOps {
  static constexpr bool kBothWide = true;
  static bool fixed_masks(BitPlace& place, const SegmentCoding& coding, const SegmentShape& shape,
                          SegmentBlocks& blocks) {
    return read_fixed_masks(place, coding, shape, blocks);
  }
  static bool list(BitPlace& place, size_t count, int rice, ListBytes& list) {
    return read_list<WordOps>(place, count, rice, list);
  }
  static uint64_t deposit(uint64_t bits, uint64_t mask) {
    // A run of ones from the lowest on needs no search.
    if ((mask & (mask + 1)) == 0) return bits & mask;
    uint64_t result = 0;
    for (; mask != 0; mask &= mask - 1, bits >>= 1) {
      if ((bits & 1) != 0) result |= mask & (~mask + 1);
    }
    return result;
  }
  static void add_offsets(uint64_t offsets, int16_t least, int16_t* to) {
    for (size_t i = 0; i < 4; ++i) {
      to[i] = static_cast<int16_t>(least + static_cast<int>(offsets >> (16 * i) & 0xFFFF));
    }
  }
  static void copy(const uint8_t* data, size_t at, size_t words, uint64_t* plane) {
    for (size_t w = 0; w < words; ++w) plane[w] = whole_word_at(data, at + 64 * w);
  }
  static std::array<int, 64> values(const ValuePlanes& planes, size_t w) {
    std::array<int, 64> sums;
    sums.fill(1);
    const auto add = [&sums](uint64_t plane, int shift) {
      for (size_t i = 0; i < 64; ++i) sums[i] += static_cast<int>(plane >> i & 1) << shift;
    };
    for (int bit = 0; bit < planes.rice; ++bit) add(planes.raw[static_cast<size_t>(bit)][w], bit);
    for (int bit = 0; bit < planes.deepest; ++bit) {
      const auto index = static_cast<size_t>(bit);
      add(planes.deep[index + 1][w], planes.rice + bit);
      add(planes.low[index][w], planes.rice + bit);
    }
    for (size_t i = 0; i < 64; ++i) {
      const int sign = -static_cast<int>(planes.sign[w] >> i & 1);
      sums[i] = (sums[i] ^ sign) - sign;
    }
    return sums;
  }
  static void values8(const ValuePlanes& planes, size_t w, int8_t* to) {
    const auto all = values(planes, w);
    for (size_t i = 0; i < 64; ++i) to[i] = static_cast<int8_t>(all[i]);
  }
  static void values16(const ValuePlanes& planes, size_t w, int8_t* low, int8_t* high) {
    const auto all = values(planes, w);
    for (size_t i = 0; i < 64; ++i) {
      low[i] = static_cast<int8_t>(all[i]);
      high[i] = static_cast<int8_t>(all[i] >> 8);
    }
  }
  static void extend(const int8_t* low, int8_t* high) {
    for (size_t i = 0; i < 64; ++i) high[i] = low[i] < 0 ? -1 : 0;
  }
};

}  // namespace

bool unpack_segments_words(const SegmentCoding& coding, const SegmentSource* sources, size_t count,
                           SegmentBlocks* blocks) {
  return unpack_segments<WordOps>(coding, sources, count, blocks);
}

}  // namespace fastload
