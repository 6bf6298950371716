// Blocks of a picture, plane by plane, as the lists that the transcoder has them in.
#pragma once

#include <array>
#include <vector>

#include "transcode/jpeg_parts.h"

namespace fastload::test {

// The opposite of BlockLists::planes().
inline void list_planes(const std::array<std::vector<int16_t>, 3>& planes, JpegParts& parts) {
  const JpegHeader& header = parts.header;
  BlockLists& lists = parts.blocks;
  lists.open(header);
  for (size_t row = 0; row < static_cast<size_t>(header.mcu_rows); ++row) {
    for (size_t segment = 0; segment < lists.segments_per_row(); ++segment) {
      const SegmentShape& shape = lists.shape(segment);
      std::vector<int16_t> coefs;
      size_t in_mcu = 0;
      for (size_t r = 0; r < shape.rows; ++r) {
        const size_t c = shape.component[r];
        in_mcu = r > 0 && shape.component[r - 1] == c ? in_mcu + 1 : 0;
        const auto columns = static_cast<size_t>(header.mcus_per_row) * header.components[c].h;
        const size_t first =
            segment * static_cast<size_t>(lists.segment_mcus()) * header.components[c].h;
        const size_t block = (row * header.components[c].v + in_mcu) * columns + first;
        const auto begin = planes[c].begin() + static_cast<ptrdiff_t>(block * 64);
        coefs.insert(coefs.end(), begin, begin + shape.blocks[r] * ptrdiff_t{64});
      }
      lists.add(coefs.data(), shape.block_count);
    }
  }
  lists.close();
}

}  // namespace fastload::test
