#include "transcode/block_coder.h"

namespace fastload {

SmallCodes small_codes(const HuffmanCodes& ac) {
  SmallCodes codes{};
  for (size_t zeros = 0; zeros < 16; ++zeros) {
    for (int value = -SmallCodes::kMagnitude; value < SmallCodes::kMagnitude; ++value) {
      const Category kind = category(value);
      const HuffmanCodes::Code code = ac.of[zeros << 4 | static_cast<size_t>(kind.size)];
      if (value == 0 || code.length == 0) continue;
      const uint32_t bits = uint32_t{code.code} << kind.size | kind.bits;
      codes.of[zeros << 7 | static_cast<size_t>(value + SmallCodes::kMagnitude)] =
          bits << 6 | SmallCodes::kThere | static_cast<uint32_t>(code.length + kind.size);
    }
  }
  return codes;
}

CodeBytes code_bytes(const HuffmanCodes& ac) {
  CodeBytes bytes{};
  for (size_t symbol = 0; symbol < 256; ++symbol) {
    bytes.low[symbol] = static_cast<uint8_t>(ac.of[symbol].code);
    bytes.high[symbol] = static_cast<uint8_t>(ac.of[symbol].code >> 8);
    bytes.length[symbol] = static_cast<uint8_t>(ac.of[symbol].length);
  }
  return bytes;
}

}  // namespace fastload
