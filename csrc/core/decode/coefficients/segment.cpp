#include "decode/coefficients/segment.h"

#include <algorithm>

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

void expand_block(const SegmentBlocks& blocks, size_t block, int16_t* coefs) {
  std::fill_n(coefs, 64, int16_t{0});
  coefs[0] = blocks.dc[block];
  size_t next[2] = {blocks.starts[0][block], blocks.starts[1][block]};
  for (size_t k = 1; k < 64; ++k) {
    if ((blocks.masks[block] >> k & 1) == 0) continue;
    const size_t list = (blocks.lows[block] >> k & 1) != 0 ? 0 : 1;
    const size_t at = next[list]++;
    coefs[k] = blocks.is_wide[list] ? blocks.words[list][at] : int16_t{blocks.bytes[list][at]};
  }
}

}  // namespace fastload
