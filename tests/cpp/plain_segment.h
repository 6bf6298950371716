// The reference of transcode/segment_writer.h: a segment written bit by bit, as FORMAT.md says it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "decode/coefficients/mask_codes.h"
#include "transcode/masks.h"
#include "transcode/segment_writer.h"

namespace fastload::test {

// Bits from the lowest on, appended to a vector.
class BitWriter {
 public:
  explicit BitWriter(std::vector<uint8_t>& out) : out_(out) {}
  void put(uint64_t value, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      if (at_ % 8 == 0) out_.push_back(0);
      out_.back() |= static_cast<uint8_t>((value >> i & 1) << (at_ % 8));
      ++at_;
    }
  }

 private:
  std::vector<uint8_t>& out_;
  size_t at_ = 0;
};

inline void put_dc(BitWriter& bits, const SegmentShape& shape, const int16_t* const* blocks) {
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
  }
  for (size_t row = 0; row < shape.rows; ++row) bits.put(static_cast<uint64_t>(widths[row]), 4);
  for (size_t row = 0; row < shape.rows; ++row) {
    bits.put(static_cast<uint64_t>(static_cast<int64_t>(least[row])), 12);
  }
  block = 0;
  for (size_t row = 0; row < shape.rows; ++row) {
    for (size_t i = 0; i < shape.blocks[row]; ++i, ++block) {
      bits.put(static_cast<uint64_t>(blocks[block][0] - least[row]),
               static_cast<size_t>(widths[row]));
    }
  }
}

inline void put_masks(BitWriter& bits, const SegmentCoding& coding, const SegmentShape& shape,
               const uint64_t* masks) {
  if (coding.form == CoefficientForm::kFast) {
    const MaskClasses classes(coding);
    const auto class_of = [&](uint64_t mask) {
      const uint8_t found = classes.of[static_cast<size_t>(std::bit_width(mask))];
      if (found < kMaskClasses) return found;
      throw Error(ErrorKind::kValue, "a mask is longer than every class");
    };
    for (size_t block = 0; block < shape.block_count; ++block) {
      bits.put(class_of(masks[block]), 4);
    }
    for (size_t block = 0; block < shape.block_count; ++block) {
      bits.put(masks[block], coding.mask_lengths[class_of(masks[block])]);
    }
    return;
  }
  const MaskCodes& codes = mask_codes();
  size_t block = 0;
  for (size_t row = 0; row < shape.rows; ++row) {
    int before = kFirstCount;
    for (size_t i = 0; i < shape.blocks[row]; ++i, ++block) {
      const int count = (std::bit_width(masks[block]) + 7) / 8;
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

inline void put_values(BitWriter& bits, const std::vector<int16_t>& values, int rice) {
  if (values.empty()) return;
  for (const int value : values) bits.put(value < 0 ? 1 : 0, 1);
  std::vector<uint32_t> quotients;  // q of FORMAT.md
  for (const int value : values) {
    quotients.push_back((static_cast<uint32_t>(std::abs(value) - 1) >> rice) + 1);
  }
  for (int bit = 0; bit < rice; ++bit) {
    for (const int value : values) bits.put(static_cast<uint64_t>(std::abs(value) - 1) >> bit, 1);
  }
  const auto depth = [](uint32_t q) { return static_cast<int>(std::bit_width(q)) - 1; };
  int deepest = 0;
  for (const uint32_t q : quotients) deepest = std::max<int>(deepest, depth(q));
  for (int plane = 1; plane <= deepest + 1; ++plane) {
    for (const uint32_t q : quotients) {
      if (depth(q) >= plane - 1) bits.put(depth(q) >= plane ? 1 : 0, 1);
    }
  }
  for (int bit = 0; bit < deepest; ++bit) {
    for (const uint32_t q : quotients) {
      if (depth(q) > bit) bits.put(q >> bit, 1);
    }
  }
}

// Appends a segment of blocks of 64 coefficients. Throws Error(kValue) for a mask that is longer
// than every class.
inline void pack_segment_plainly(const SegmentCoding& coding, const SegmentShape& shape,
                                 const int16_t* const* blocks, std::vector<uint8_t>& out) {
  BitWriter bits(out);
  put_dc(bits, shape, blocks);
  std::array<uint64_t, kMaxSegmentBlocks> masks{};
  for (size_t block = 0; block < shape.block_count; ++block) masks[block] = mask_of(blocks[block]);
  put_masks(bits, coding, shape, masks.data());
  std::array<std::vector<int16_t>, 2> lists;
  size_t block = 0;
  for (size_t row = 0; row < shape.rows; ++row) {
    const auto& positions = coding.low[shape.component[row] > 0 ? 1 : 0];
    for (size_t i = 0; i < shape.blocks[row]; ++i, ++block) {
      const auto count = static_cast<size_t>((std::bit_width(masks[block]) + 7) / 8);
      for (size_t k = 1; k < 64; ++k) {
        if (blocks[block][k] == 0) continue;
        lists[(positions[count] >> k & 1) != 0 ? 0 : 1].push_back(blocks[block][k]);
      }
    }
  }
  for (size_t list = 0; list < 2; ++list) put_values(bits, lists[list], coding.rice[list]);
}

}  // namespace fastload::test
