// The entropy-coded data of a scan, written: bits from the highest on, a zero byte behind each FF.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "decode/jpeg/parser.h"

namespace fastload {

class ScanBits {
 public:
  explicit ScanBits(std::vector<uint8_t>& out) : out_(out), used_(out.size()) {}

  // What is being written, apart from the buffer: a copy of it lives in registers while a block is
  // written.
  struct Cursor {
    uint64_t word;
    int free;  // bits of word
    uint8_t* to;

    // The lowest `count` bits of `bits`, whose others are zero; at most 32.
    void put(uint64_t bits, int count) {
      free -= count;
      if (free >= 0) [[likely]] {
        word |= bits << free;
        return;
      }
      word |= bits >> -free;
      flush_word();
      free += 64;
      word = bits << free;
    }
    void put_byte(uint8_t byte) {
      *to++ = byte;
      if (byte == 0xFF) *to++ = 0;
    }

   private:
    void flush_word() {
      // A byte of all ones anywhere: its complement has a zero byte ("Bit Twiddling Hacks",
      // S. E. Anderson).
      const uint64_t inverse = ~word;
      if (((inverse - 0x0101010101010101u) & ~inverse & 0x8080808080808080u) == 0) [[likely]] {
        uint64_t bytes = word;
        if constexpr (std::endian::native == std::endian::little) bytes = __builtin_bswap64(bytes);
        std::memcpy(to, &bytes, 8);
        to += 8;
        return;
      }
      for (int shift = 56; shift >= 0; shift -= 8) put_byte(static_cast<uint8_t>(word >> shift));
    }
  };
  [[nodiscard]] Cursor cursor() { return {word_, free_, out_.data() + used_}; }
  void move_to(const Cursor& cursor) {
    word_ = cursor.word;
    free_ = cursor.free;
    used_ = static_cast<size_t>(cursor.to - out_.data());
  }

  // Room for `bytes` before stuffing. To be called before that many are put.
  void reserve(size_t bytes) {
    const size_t needed = used_ + 2 * bytes + 16;
    if (out_.size() < needed) out_.resize(needed + out_.size() / 2);
  }
  void put(uint64_t bits, int count) {
    Cursor at = cursor();
    at.put(bits, count);
    move_to(at);
  }
  // Fills up the last byte.
  void pad(bool with_ones) {
    const int filled = 64 - free_;
    const int spare = (8 - filled % 8) % 8;
    reserve(8);
    if (spare > 0) put(with_ones ? (1u << spare) - 1 : 0, spare);
    Cursor at = cursor();
    for (int left = 64 - at.free; left > 0; left -= 8) {
      at.put_byte(static_cast<uint8_t>(at.word >> 56));
      at.word <<= 8;
    }
    at.word = 0;
    at.free = 64;
    move_to(at);
  }
  void put_marker(uint8_t marker) {
    reserve(2);
    out_[used_++] = 0xFF;
    out_[used_++] = marker;
  }
  // The vector ends where the scan does.
  void finish() { out_.resize(used_); }

 private:
  std::vector<uint8_t>& out_;
  size_t used_;
  uint64_t word_ = 0;
  int free_ = 64;  // bits of word_
};

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
inline Category category(int value) {
  const int sign = value >> 31;
  const auto magnitude = static_cast<uint32_t>((value ^ sign) - sign);
  const int size = std::bit_width(magnitude);
  return {size, static_cast<uint32_t>(value + sign) & ((1u << size) - 1)};
}

// Puts the symbol's code and, behind it, `count` bits.
template <class Out>  // ScanBits or its Cursor
void put_symbol(Out& out, const HuffmanCodes& codes, int symbol, uint32_t bits, int count) {
  const HuffmanCodes::Code code = codes.of[static_cast<size_t>(symbol)];
  if (code.length == 0) [[unlikely]]
    throw_no_code();
  out.put(uint64_t{code.code} << count | bits, code.length + count);
}

}  // namespace fastload
