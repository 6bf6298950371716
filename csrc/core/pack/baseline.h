// Progressive JPEGs as baseline ones, without loss: the same DCT coefficients in another order.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "decode/decode.h"

namespace fastload {

// The progressive JPEG `file` as a sequential one with Huffman tables of its own: coefficients,
// quantisation, sampling and all APPn and COM segments (EXIF, ICC, Adobe) are untouched, so every
// decoder gives the same pixels; one interleaved scan, no restart markers. What follows the
// end-of-image marker is left out. The coefficients of the whole picture are in memory meanwhile:
// 2 bytes each.
//
// Throws Error(kLimit) above `limits`, before anything is allocated in proportion to the picture,
// or above kMaxRecordBytes of output; Error(kDecode) for files that are not progressive or not
// whole (damage that decoders only warn of, missing scans, which decoders smooth over), and for
// what a sequential scan cannot say: coefficients beyond its range, more than 10 blocks an MCU,
// segments between the scans.
std::vector<uint8_t> to_baseline(Bytes file, const DecodeLimits& limits = {});

}  // namespace fastload
