// Segments read as FORMAT.md says it, bit by bit: the reference.
#include <algorithm>
#include <bit>

#include "decode/coefficients/mask_codes.h"
#include "decode/coefficients/segment.h"

namespace fastload {
namespace {

// Bits from the lowest on. Past the end there are zeros, and ok() is false.
class BitReader {
 public:
  BitReader(const uint8_t* data, size_t size) : data_(data), bits_(size * 8) {}

  uint32_t peek(size_t count) const {
    uint32_t value = 0;
    for (size_t i = 0; i < count && at_ + i < bits_; ++i) value |= bit(at_ + i) << i;
    return value;
  }
  void skip(size_t count) { at_ += count; }
  uint32_t take(size_t count) {
    const uint32_t value = peek(count);
    skip(count);
    return value;
  }
  uint64_t take64(size_t count) {
    const uint64_t low = take(std::min<size_t>(count, 32));
    return count > 32 ? low | uint64_t{take(count - 32)} << 32 : low;
  }
  [[nodiscard]] bool has(size_t count) const { return at_ <= bits_ && count <= bits_ - at_; }
  // Everything was there, and what is left is less than a byte of zeros.
  [[nodiscard]] bool is_at_end() const {
    return at_ <= bits_ && bits_ - at_ < 8 && peek(bits_ - at_) == 0;
  }

 private:
  [[nodiscard]] uint32_t bit(size_t at) const { return data_[at / 8] >> (at % 8) & 1u; }
  const uint8_t* data_;
  size_t bits_;
  size_t at_ = 0;
};

void read_dc(BitReader& bits, const SegmentShape& shape, SegmentBlocks& blocks, bool& ok) {
  std::array<uint32_t, kMaxSegmentRows> widths{};
  std::array<int32_t, kMaxSegmentRows> least{};
  for (size_t row = 0; row < shape.rows; ++row) {
    widths[row] = bits.take(4);
    if (widths[row] > 12) ok = false;
  }
  for (size_t row = 0; row < shape.rows; ++row) {
    least[row] = static_cast<int32_t>(bits.take(12) ^ 0x800u) - 0x800;
  }
  size_t block = 0;
  for (size_t row = 0; row < shape.rows; ++row) {
    for (size_t i = 0; i < shape.blocks[row]; ++i, ++block) {
      blocks.dc[block] =
          static_cast<int16_t>(least[row] + static_cast<int32_t>(bits.take(widths[row])));
    }
  }
}

void read_fixed_masks(BitReader& bits, const SegmentCoding& coding, const SegmentShape& shape,
                      SegmentBlocks& blocks) {
  std::array<uint32_t, kMaxSegmentBlocks> classes{};
  for (size_t block = 0; block < shape.block_count; ++block) classes[block] = bits.take(4);
  for (size_t block = 0; block < shape.block_count; ++block) {
    blocks.masks[block] = bits.take64(coding.mask_lengths[classes[block]]) << 1;
  }
}

uint32_t take_code(BitReader& bits, const uint16_t* table, int longest) {
  const uint32_t entry = table[bits.peek(static_cast<size_t>(longest))];
  bits.skip(entry >> 8);
  return entry & 0xFF;
}

void read_coded_masks(BitReader& bits, const SegmentShape& shape, SegmentBlocks& blocks, bool& ok) {
  const MaskCodes& codes = mask_codes();
  size_t block = 0;
  for (size_t row = 0; row < shape.rows; ++row) {
    const bool is_chroma = shape.component[row] > 0;
    int count = kFirstCount;
    for (size_t i = 0; i < shape.blocks[row]; ++i, ++block) {
      const auto& counts = codes.counts[count_context(is_chroma, count)];
      count = static_cast<int>(take_code(bits, counts.data(), kCountBits));
      uint64_t mask = 0;
      for (int byte = 0; byte < count; ++byte) {
        const auto& table = codes.bytes[byte_context(byte, count)];
        mask |= uint64_t{take_code(bits, table.data(), kByteBits)} << (8 * byte);
      }
      if (mask >> 63 != 0) ok = false;
      blocks.masks[block] = mask << 1;
    }
  }
}

// Sets lows and starts; the lists' lengths are their last starts.
void split_lists(const SegmentCoding& coding, const SegmentShape& shape, SegmentBlocks& blocks) {
  size_t block = 0, low = 0, high = 0;
  for (size_t row = 0; row < shape.rows; ++row) {
    const auto& positions = coding.low[shape.component[row] > 0 ? 1 : 0];
    for (size_t i = 0; i < shape.blocks[row]; ++i, ++block) {
      const uint64_t mask = blocks.masks[block];
      const int count = (std::bit_width(mask >> 1) + 7) / 8;
      blocks.lows[block] = mask & positions[static_cast<size_t>(count)];
      blocks.starts[0][block] = static_cast<uint16_t>(low);
      blocks.starts[1][block] = static_cast<uint16_t>(high);
      low += static_cast<size_t>(std::popcount(blocks.lows[block]));
      high += static_cast<size_t>(std::popcount(mask & ~blocks.lows[block]));
    }
  }
  blocks.starts[0][block] = static_cast<uint16_t>(low);
  blocks.starts[1][block] = static_cast<uint16_t>(high);
}

bool read_values(BitReader& bits, size_t count, int rice, int8_t* lows, int8_t* highs) {
  if (count == 0) return true;
  std::array<uint8_t, SegmentBlocks::kValues> depth{};
  std::array<uint16_t, SegmentBlocks::kValues> quotient{}, raw{}, sign{};
  const auto members = [&](int least) {
    return static_cast<size_t>(std::count_if(depth.begin(),
                                             depth.begin() + static_cast<long>(count),
                                             [least](uint8_t d) { return d >= least; }));
  };
  if (!bits.has(count)) return false;
  for (size_t i = 0; i < count; ++i) sign[i] = static_cast<uint16_t>(bits.take(1));
  for (int bit = 0; bit < rice; ++bit) {
    if (!bits.has(count)) return false;
    for (size_t i = 0; i < count; ++i) raw[i] |= static_cast<uint16_t>(bits.take(1) << bit);
  }
  int deepest = 0;
  for (size_t left = count; left > 0; ++deepest) {  // S_1, S_2, ...
    if (!bits.has(left)) return false;
    for (size_t i = 0; i < count; ++i) {
      if (depth[i] == deepest && bits.take(1) != 0) ++depth[i];
    }
    left = members(deepest + 1);
    if (left > 0 && deepest + 1 >= 15 - rice) return false;
  }
  for (int bit = 0; bit + 1 < deepest; ++bit) {  // low_0, low_1, ...
    if (!bits.has(members(bit + 1))) return false;
    for (size_t i = 0; i < count; ++i) {
      if (depth[i] > bit) quotient[i] |= static_cast<uint16_t>(bits.take(1) << bit);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    const int q = (1 << depth[i] | quotient[i]) - 1;
    const int magnitude = 1 + raw[i] + (q << rice);
    const int value = sign[i] != 0 ? -magnitude : magnitude;
    lows[i] = static_cast<int8_t>(value);
    highs[i] = static_cast<int8_t>(value >> 8);
  }
  return true;
}

bool unpack(const SegmentCoding& coding, const SegmentSource& source, SegmentBlocks& blocks) {
  const SegmentShape& shape = *source.shape;
  BitReader bits(source.data, source.size);
  bool ok = true;
  read_dc(bits, shape, blocks, ok);
  if (coding.form == CoefficientForm::kFast) {
    read_fixed_masks(bits, coding, shape, blocks);
  } else {
    read_coded_masks(bits, shape, blocks, ok);
  }
  if (!ok || !bits.has(0)) return false;
  split_lists(coding, shape, blocks);
  blocks.is_wide = true;
  blocks.wide = {true, true};
  for (size_t list = 0; list < 2; ++list) {
    if (!read_values(bits, blocks.starts[list][shape.block_count], coding.rice[list],
                     blocks.bytes[list].data(), blocks.highs[list].data())) {
      return false;
    }
  }
  return bits.is_at_end();
}

}  // namespace

bool unpack_segments_scalar(const SegmentCoding& coding, const SegmentSource* sources, size_t count,
                            SegmentBlocks* blocks) {
  for (size_t i = 0; i < count; ++i) {
    if (!unpack(coding, sources[i], blocks[i])) return false;
  }
  return true;
}

}  // namespace fastload
