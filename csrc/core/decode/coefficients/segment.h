// A segment of a coefficient record: the blocks of 64 pixels of a row of MCUs, as masks of nonzero
// coefficients and lists of their values. FORMAT.md, "Coefficient records", is normative.
//
// Reading has two steps. unpack() turns segments into SegmentBlocks, whose lists are still dense;
// transform() spreads the values of blocks side by side to their places and does the inverse DCT.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/kernels.h"
#include "decode/jpeg/parser.h"

namespace fastload {

constexpr int kSegmentPixels = 64;
constexpr size_t kMaxSegmentBlocks = 32;  // 4:4:0
constexpr size_t kMaxSegmentRows = 4;     // rows of blocks
// Bytes that can be read behind a segment.
constexpr size_t kSegmentSlack = 64;
constexpr int kMaxRice = 3;
constexpr size_t kMaskClasses = 16;
constexpr int kMaskBytes = 8;

// How masks are coded.
enum class CoefficientForm : uint8_t { kFast = 1, kSmall = 2 };

// The rows of blocks of a segment, in their order.
struct SegmentShape {
  size_t rows = 0;
  size_t block_count = 0;
  std::array<uint8_t, kMaxSegmentRows> blocks{};     // in each row
  std::array<uint8_t, kMaxSegmentRows> component{};  // of each row
};

// MCUs across a whole segment.
int coefficient_segment_mcus(const JpegHeader& header);
// The shape of a segment of `mcus` MCUs.
SegmentShape segment_shape(const JpegHeader& header, int mcus);

// What all segments of a record share.
struct SegmentCoding {
  CoefficientForm form = CoefficientForm::kFast;
  std::array<uint8_t, kMaskClasses> mask_lengths{};  // bits, 0..63; kFast only
  std::array<uint8_t, 2> rice{};                     // of lists A and B, 0..kMaxRice
  // Positions (bit k: coefficient k in zig-zag order) whose values are in list A, by luma or
  // chroma and by the number of mask bytes up to the last nonzero one.
  std::array<std::array<uint64_t, kMaskBytes + 1>, 2> low{};
};

// Where a segment lies. kSegmentSlack bytes more can be read.
struct SegmentSource {
  const uint8_t* data;
  size_t size;
  const SegmentShape* shape;
};

// An unpacked segment. Values of list i are `bytes[i]`, and where it has larger ones (wide[i])
// those are the low bytes and highs[i] the high ones; kernels that want both lists alike (is_wide)
// fill in the other one's, too. Those of a block begin at starts[i][block], and 64 elements behind
// the last can be read.
struct SegmentBlocks {
  static constexpr size_t kValues = kMaxSegmentBlocks * 63 + 64;
  // Whole groups of blocks are read, so there is room behind the last.
  static constexpr size_t kBlocks = kMaxSegmentBlocks + 4;
  std::array<uint64_t, kBlocks> masks;  // bit k, 1..63: coefficient k is not zero
  std::array<uint64_t, kBlocks> lows;   // those of them whose value is in list A
  std::array<std::array<uint16_t, kBlocks>, 2> starts;
  std::array<int16_t, kMaxSegmentBlocks + 32> dc;
  bool is_wide;  // either list
  std::array<bool, 2> wide;
  alignas(64) std::array<std::array<int8_t, kValues>, 2> bytes;
  alignas(64) std::array<std::array<int8_t, kValues>, 2> highs;
};

// Unpacks `count` segments into blocks[0 .. count). False: one is damaged.
using UnpackSegments = bool (*)(const SegmentCoding& coding, const SegmentSource* sources,
                                size_t count, SegmentBlocks* blocks);

// Dequantises the blocks [first, first + count) of one row of blocks and transforms them into 8
// rows of samples at `out`, equal to IdctKernel::transform. Up to group - 1 blocks behind them are
// written, too (group as IdctKernel has it). `steps` in natural order.
using TransformSegment = void (*)(const SegmentBlocks& blocks, size_t first, size_t count,
                                  const uint16_t* steps, uint8_t* out, size_t stride);

struct SegmentKernels {
  UnpackSegments unpack;
  TransformSegment transform;
};

SegmentKernels segment_kernels(SimdLevel level);

// Value number `at` of a list.
inline int16_t value_at(const SegmentBlocks& blocks, size_t list, size_t at) {
  const int low = blocks.bytes[list][at];
  return static_cast<int16_t>(blocks.wide[list] ? (low & 0xFF) | blocks.highs[list][at] * 256
                                                : low);
}

// The coefficients of one block in zig-zag order, DC first.
void expand_block(const SegmentBlocks& blocks, size_t block, int16_t* coefs);

// The reference, bit by bit as FORMAT.md says it.
bool unpack_segments_scalar(const SegmentCoding& coding, const SegmentSource* sources, size_t count,
                            SegmentBlocks* blocks);

FASTLOAD_KERNEL(bool unpack_segments(const SegmentCoding& coding, const SegmentSource* sources,
                                     size_t count, SegmentBlocks* blocks));
FASTLOAD_KERNEL(void transform_segment(const SegmentBlocks& blocks, size_t first, size_t count,
                                       const uint16_t* steps, uint8_t* out, size_t stride));

}  // namespace fastload
