// Blocks to a segment of a coefficient record. FORMAT.md, "Coefficient records", is normative.
#pragma once

#include <array>
#include <cstdint>

#include "base/kernels.h"
#include "decode/coefficients/segment.h"
#include "transcode/block_lists.h"

namespace fastload {

constexpr int kLeastDc = -2048;  // 12 bits
constexpr int kMostDc = 2047;
constexpr int kMostMagnitude = (1 << 15) - (1 << kMaxRice);  // of an AC coefficient

// For masks of each length (bits, 0..63) the shortest class that holds them, the first of equals;
// kMaskClasses: none does.
struct MaskClasses {
  explicit MaskClasses(const SegmentCoding& coding);
  std::array<uint8_t, kMaskClasses> lengths;
  std::array<uint8_t, 64> of;
};

// The longest segment: the rows' heads, and for each block 12 bits of DC, at most 87 of mask and 63
// values of at most 32 bits.
constexpr size_t kMostSegmentBytes = 8 + kMaxSegmentBlocks * (2 + 12 + 63 * 4) + 16;

// Writes the segment to `to`, where kMostSegmentBytes can be written, and returns its bytes; 0
// where a mask is longer than every class (form kFast). The coefficients are inside the bounds
// above. `classes` are the coding's; each of its `low` has the first positions up to some one.
FASTLOAD_KERNEL(size_t pack_segment(const SegmentCoding& coding, const MaskClasses& classes,
                                    const SegmentShape& shape, const ListedSegment& segment,
                                    uint8_t* to));

}  // namespace fastload
