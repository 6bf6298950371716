// Blocks to a segment of a coefficient record. FORMAT.md, "Coefficient records", is normative.
#pragma once

#include <cstdint>
#include <vector>

#include "decode/coefficients/segment.h"

namespace fastload {

constexpr int kLeastDc = -2048;  // 12 bits
constexpr int kMostDc = 2047;
constexpr int kMostMagnitude = (1 << 15) - (1 << kMaxRice);  // of an AC coefficient

// Appends the segment of the blocks (64 coefficients each, zig-zag, in the segment's order). The
// coefficients are inside the bounds above. Throws Error(kValue) for a mask that is longer than
// every class of coding.mask_lengths (form kFast).
void pack_segment(const SegmentCoding& coding, const SegmentShape& shape,
                  const int16_t* const* blocks, std::vector<uint8_t>& out);

// The same, bit by bit: the reference.
void pack_segment_scalar(const SegmentCoding& coding, const SegmentShape& shape,
                         const int16_t* const* blocks, std::vector<uint8_t>& out);

}  // namespace fastload
