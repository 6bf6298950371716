// A JPEG file taken apart into its coefficients and all else, and put together again byte for byte.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "decode/decode.h"
#include "decode/jpeg/parser.h"
#include "transcode/block_lists.h"

namespace fastload {

struct JpegParts {
  JpegHeader header;  // of progressive files, too
  bool is_progressive = false;
  BlockLists blocks;          // DC whole
  std::vector<uint8_t> rest;  // FORMAT.md, "Coefficient records"
};

// Throws Error(kDecode) with the reason for a file that cannot be kept so, Error(kLimit) for one
// above the limits.
void split_jpeg(Bytes file, const DecodeLimits& limits, JpegParts& parts);

// Whether both decode to the same pixels: size, sampling, quantisation and coefficients.
bool is_same_picture(const JpegParts& a, const JpegParts& b);
// Of the headers alone.
bool is_same_frame(const JpegHeader& a, const JpegHeader& b);

// The file, in place of what `file` held. Throws Error(kDecode) where `rest` is damaged or does not
// fit the coefficients.
void join_jpeg(const JpegParts& parts, std::vector<uint8_t>& file);

}  // namespace fastload
