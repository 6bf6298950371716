// What decoding a part of a picture takes, by arithmetic: whether several parts are cheaper decoded
// one by one or together is asked for each sample, before any of them is decoded.
#pragma once

#include <cstddef>

#include "base/geometry.h"
#include "decode/decode.h"

namespace fastload {

// Nanoseconds, about: what is Huffman-decoded or inflated by its bytes, what becomes pixels by its
// area. `info` and `bytes` are of the open picture, `entries` as for Decoder::decode(). 0 for what
// lies in memory as pixels: raw records, and what Pillow has decoded.
double decode_cost(const ImageInfo& info, size_t bytes, Rect roi, const EntryPoints& entries);

}  // namespace fastload
