// Sequential scans, Huffman-coded many blocks at a time.
#pragma once

#include "transcode/jpeg_parts.h"
#include "transcode/jpeg_walk.h"
#include "transcode/scan_bits.h"

namespace fastload {

// Appends the entropy-coded data of the scan that `walk` stands behind, restart markers included.
// Throws Error(kDecode) where a table is missing or lacks a code.
void write_sequential(const JpegParts& parts, const JpegWalk& walk, bool pads_with_ones,
                      ScanBits& out);

}  // namespace fastload
