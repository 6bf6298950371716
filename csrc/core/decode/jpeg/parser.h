// The header of a JPEG file: markers, tables and frame layout (ITU-T T.81, Annex B).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "decode/decode.h"

namespace fastload {

// A Huffman table as the file states it (T.81, B.2.4.2).
struct HuffmanSpec {
  std::array<uint8_t, 17> counts{};    // codes of each length 1..16; [0] is unused
  std::array<uint8_t, 256> symbols{};  // in order of code
  bool present = false;
  bool operator==(const HuffmanSpec&) const = default;
};

// Quantisation steps in natural (row-major) order.
struct QuantTable {
  std::array<uint16_t, 64> steps{};
  bool present = false;
};

struct JpegComponent {
  uint8_t id = 0;
  uint8_t h = 1;  // horizontal sampling factor; 1 for a one-component file whatever it says
  uint8_t v = 1;
  uint8_t quant = 0;  // table numbers
  uint8_t dc = 0;
  uint8_t ac = 0;
};

struct JpegHeader {
  int width = 0;            // pixels
  int height = 0;           // pixels
  int component_count = 0;  // 1 (gray) or 3 (YCbCr)
  std::array<JpegComponent, 3> components{};
  std::array<QuantTable, 4> quant{};
  std::array<HuffmanSpec, 4> dc{};
  std::array<HuffmanSpec, 4> ac{};
  int restart_interval = 0;  // MCUs, 0: no restart markers
  size_t scan_begin = 0;     // offset of the first entropy-coded byte
  bool is_progressive = false;

  int mcu_width = 8;  // pixels
  int mcu_height = 8;
  int mcus_per_row = 0;
  int mcu_rows = 0;
  int blocks_per_mcu = 1;

  // Samples of a component across and down, without padding (T.81, A.1.1).
  [[nodiscard]] int plane_width(int component) const;
  [[nodiscard]] int plane_height(int component) const;
};

// Position in natural order of the k-th coefficient in zig-zag order (T.81, figure A.6).
inline constexpr std::array<uint8_t, 64> kZigzag{
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

// Sets mcu_width and what follows it by the size and the components' sampling factors.
void lay_out_mcus(JpegHeader& header);

// Reads everything up to the scan. Returns false where the file is not one that JpegDecoder
// decodes: it takes 8-bit sequential Huffman files (SOF0, SOF1) whose first scan holds all
// components, gray or YCbCr at 4:4:4, 4:2:2, 4:2:0 or 4:4:0, and leaves every oddity to
// libjpeg-turbo. Throws Error(kDecode) for a file that is damaged before its scan (this includes
// missing tables) and Error(kLimit) for one that is too large; nothing is allocated.
bool parse_jpeg(Bytes bytes, const DecodeLimits& limits, JpegHeader& header);

// The same for files of any number of scans, progressive ones (SOF2) among them: up to the first
// scan, of which it reads nothing.
bool parse_jpeg_frame(Bytes bytes, const DecodeLimits& limits, JpegHeader& header);

}  // namespace fastload
