// Scans of coefficients, Huffman-coded as T.81 says and, where it leaves a choice, as libjpeg does.
#pragma once

#include <cstdint>
#include <vector>

#include "transcode/jpeg_parts.h"
#include "transcode/jpeg_walk.h"

namespace fastload {

// Appends the entropy-coded data of the scan that `walk` stands behind, restart markers included.
// Throws Error(kDecode) where a table is missing or lacks a code.
void write_scan(const JpegParts& parts, const JpegWalk& walk, bool pads_with_ones,
                std::vector<uint8_t>& out);

}  // namespace fastload
