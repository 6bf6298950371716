// The entropy-coded data of a scan, written: bits from the highest on, a zero byte behind each FF.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "transcode/huffman_codes.h"

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
    void put_byte(uint8_t byte) { ScanBits::put_byte(to, byte); }

   private:
    void flush_word() {
      if (!has_ones(word)) [[likely]] {
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
  // `count` bytes, while no bits wait for others to make a byte.
  void append(const uint8_t* bytes, size_t count) {
    reserve(count);
    uint8_t* to = out_.data() + used_;
    const uint8_t* const end = bytes + count;
    while (end - bytes >= 8) {
      uint64_t word;
      std::memcpy(&word, bytes, 8);
      std::memcpy(to, &word, 8);
      const size_t plain = bytes_before_ones(word);
      to += plain;
      bytes += plain;
      if (plain == 8) [[likely]]
        continue;
      put_byte(to, *bytes++);
    }
    while (bytes != end) put_byte(to, *bytes++);
    used_ = static_cast<size_t>(to - out_.data());
  }
  void put_marker(uint8_t marker) {
    reserve(2);
    out_[used_++] = 0xFF;
    out_[used_++] = marker;
  }
  // The vector ends where the scan does.
  void finish() { out_.resize(used_); }

 private:
  static void put_byte(uint8_t*& to, uint8_t byte) {
    *to++ = byte;
    if (byte == 0xFF) *to++ = 0;
  }
  // The highest bit of each byte that is all ones, and perhaps of bytes above such a one: where the
  // complement has a zero byte ("Bit Twiddling Hacks", S. E. Anderson).
  static uint64_t ones_of(uint64_t word) {
    return (~word - 0x0101010101010101u) & word & 0x8080808080808080u;
  }
  static bool has_ones(uint64_t word) { return ones_of(word) != 0; }
  // Bytes in memory before the first that is all ones, or 8.
  static size_t bytes_before_ones(uint64_t word) {
    if constexpr (std::endian::native != std::endian::little) word = __builtin_bswap64(word);
    return static_cast<size_t>(std::countr_zero(ones_of(word))) / 8;
  }

  std::vector<uint8_t>& out_;
  size_t used_;
  uint64_t word_ = 0;
  int free_ = 64;  // bits of word_
};

// Puts the symbol's code and, behind it, `count` bits.
template <class Out>  // ScanBits or its Cursor
void put_symbol(Out& out, const HuffmanCodes& codes, int symbol, uint32_t bits, int count) {
  const HuffmanCodes::Code code = codes.of[static_cast<size_t>(symbol)];
  if (code.length == 0) [[unlikely]]
    throw_no_code();
  out.put(uint64_t{code.code} << count | bits, code.length + count);
}

}  // namespace fastload
