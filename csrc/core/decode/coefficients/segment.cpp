#include "decode/coefficients/segment.h"

#include <algorithm>
#include <bit>

namespace fastload {

int coefficient_segment_mcus(const JpegHeader& header) { return kSegmentPixels / header.mcu_width; }

SegmentShape segment_shape(const JpegHeader& header, int mcus) {
  SegmentShape shape;
  for (int c = 0; c < header.component_count; ++c) {
    const JpegComponent& component = header.components[static_cast<size_t>(c)];
    for (int v = 0; v < component.v; ++v) {
      shape.blocks[shape.rows] = static_cast<uint8_t>(mcus * component.h);
      shape.component[shape.rows] = static_cast<uint8_t>(c);
      shape.block_count += shape.blocks[shape.rows];
      ++shape.rows;
    }
  }
  return shape;
}

SegmentKernels segment_kernels(SimdLevel level) {
  return {FASTLOAD_KERNEL_AT(level, unpack_segments), FASTLOAD_KERNEL_AT(level, transform_segment)};
}

void expand_block(const SegmentBlocks& blocks, size_t block, int16_t* coefs) {
  std::fill_n(coefs, 64, int16_t{0});
  coefs[0] = blocks.dc[block];
  const uint64_t lows = blocks.lows[block];
  for (size_t list = 0; list < 2; ++list) {
    size_t at = blocks.starts[list][block];
    uint64_t left = list == 0 ? lows : blocks.masks[block] & ~lows;
    for (; left != 0; left &= left - 1)
      coefs[std::countr_zero(left)] = value_at(blocks, list, at++);
  }
}

}  // namespace fastload
