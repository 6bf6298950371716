// Huffman codes and values as a scan has them.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "decode/jpeg/parser.h"

namespace fastload {

// A Huffman table for writing (T.81, C.2). Length 0: there is no code.
struct HuffmanCodes {
  struct Code {
    uint16_t code;
    uint16_t length;
  };
  std::array<Code, 256> of;
};

// Throws Error(kDecode) for lengths that are no prefix code, and for a table that is missing.
HuffmanCodes huffman_codes(const HuffmanSpec& spec);

[[noreturn]] void throw_no_code();

// The category of a value and the bits that tell it apart from others of the category (T.81,
// F.1.2.1).
struct Category {
  int size;
  uint32_t bits;
};
namespace {  // compiled for several instruction sets

inline Category category(int value) {
  const int sign = value >> 31;
  const auto magnitude = static_cast<uint32_t>((value ^ sign) - sign);
  const int size = std::bit_width(magnitude);
  return {size, static_cast<uint32_t>(value + sign) & ((1u << size) - 1)};
}

}  // namespace
}  // namespace fastload
