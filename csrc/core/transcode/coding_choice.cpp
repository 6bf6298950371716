#include "transcode/coding_choice.h"

#include <bit>

#include "transcode/coding_kernels.h"

namespace fastload {
namespace {

// Values are counted in one of so many rows of blocks: a picture's rows are much alike, and any
// choice gives a right record.
constexpr size_t kCountedRow = 4;

// Those of a segment, in a row of MCUs.
void count_segment(const BlockLists& blocks, const JpegHeader& header, size_t row, size_t segment,
                   const CodingKernels& kernels, ValueCosts& costs) {
  const SegmentShape& shape = blocks.shape(segment);
  size_t block = blocks.begin(row, segment), in_mcu = 0;
  for (size_t r = 0; r < shape.rows; block += shape.blocks[r++]) {
    const size_t c = shape.component[r];
    in_mcu = r > 0 && shape.component[r - 1] == c ? in_mcu + 1 : 0;
    if ((row * header.components[c].v + in_mcu) % kCountedRow != 0) continue;
    kernels.count(blocks.masks() + block, blocks.block(block).values, shape.blocks[r],
                  c > 0 ? 1 : 0, costs);
  }
}

}  // namespace

void choose_coding(const BlockLists& blocks, CoefficientRecord& record) {
  const CodingKernels& kernels = coding_kernels(simd_level());
  ValueCosts costs;
  for (size_t row = 0; row < static_cast<size_t>(record.header.mcu_rows); ++row) {
    for (size_t segment = 0; segment < blocks.segments_per_row(); ++segment) {
      count_segment(blocks, record.header, row, segment, kernels, costs);
    }
  }
  kernels.settle(costs);
  ListChoice choice;
  kernels.choose_lists(costs, choice);
  record.coding.rice = choice.rice;
  record.last_low = choice.last_low;
  for (size_t kind = 0; kind < 2; ++kind) {
    for (size_t count = 0; count <= kMaskBytes; ++count) {
      record.coding.low[kind][count] =
          ~uint64_t{0} >> (63 - choice.last_low[kind][count]) & ~uint64_t{1};
    }
  }
  record.coding.mask_lengths = {};
  if (record.coding.form != CoefficientForm::kFast) return;
  LengthCounts lengths{};
  for (size_t block = 0; block < blocks.size(); ++block) {
    ++lengths[static_cast<size_t>(std::bit_width(blocks.masks()[block] >> 1))];
  }
  kernels.choose_lengths(lengths, record.coding.mask_lengths);
}

}  // namespace fastload
