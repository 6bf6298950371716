// The fixed prefix codes of coefficient records' masks (form "small"). FORMAT.md is normative.
//
// A mask is 63 bits in up to 8 bytes. First comes how many bytes there are up to the last nonzero
// one, in the context of the block before; then each byte, in the context of its place. Codes are
// canonical: shorter ones first, then by value; the first bit of a code is written first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fastload {

constexpr int kCountBits = 7;  // the longest code of a count
constexpr int kByteBits = 10;  // and of a byte
constexpr size_t kCountContexts = 18;
constexpr size_t kByteContexts = 15;
constexpr int kFirstCount = 4;  // stands for the block before the first of a row of blocks

// A code as it is written: `code` has its first bit lowest.
struct MaskCode {
  uint16_t code = 0;
  uint8_t length = 0;  // bits; 0: the value cannot occur
};

// What the next bits say: the value is the low byte, the code's length the high byte.
struct MaskCodes {
  std::array<std::array<uint16_t, 1 << kCountBits>, kCountContexts> counts;
  std::array<std::array<uint16_t, 1 << kByteBits>, kByteContexts> bytes;
  std::array<std::array<MaskCode, 9>, kCountContexts> write_counts;
  std::array<std::array<MaskCode, 256>, kByteContexts> write_bytes;
};

// Context of a count: of the component's kind, and of the count before it in the row of blocks.
constexpr size_t count_context(bool is_chroma, int before) {
  return static_cast<size_t>((is_chroma ? 9 : 0) + before);
}
// Context of byte `index` of `count`.
constexpr size_t byte_context(int index, int count) {
  const int place = index < 4 ? index : 4;
  const int left = count - 1 - index;
  return static_cast<size_t>(3 * place + (left < 2 ? left : 2));
}

// Built when first asked for; lives as long as the process.
const MaskCodes& mask_codes();

// The codes' lengths in hexadecimal digits, a string for each context.
extern const std::array<std::string_view, kCountContexts> kCountLengths;
extern const std::array<std::string_view, kByteContexts> kByteLengths;

}  // namespace fastload
