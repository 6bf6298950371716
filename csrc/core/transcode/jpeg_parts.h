// A JPEG file taken apart into its coefficients and all else, and put together again byte for byte.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "decode/decode.h"
#include "decode/jpeg/parser.h"

namespace fastload {

struct JpegParts {
  JpegHeader header;  // of progressive files, too
  bool is_progressive = false;
  // Of each component: [row of blocks][column][64] in zig-zag order, DC whole. As many blocks as
  // whole MCUs have: mcu_rows * v rows of mcus_per_row * h.
  std::array<std::vector<int16_t>, 3> blocks;
  std::vector<uint8_t> rest;  // FORMAT.md, "Coefficient records"
};

// Throws Error(kDecode) with the reason for a file that cannot be kept so, Error(kLimit) for one
// above the limits.
void split_jpeg(Bytes file, const DecodeLimits& limits, JpegParts& parts);

// The file. Throws Error(kDecode) where `rest` is damaged or does not fit the coefficients.
std::vector<uint8_t> join_jpeg(const JpegParts& parts);

}  // namespace fastload
