// Handing pixels to a RowSink, shared by the codecs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/geometry.h"
#include "base/row_sink.h"

namespace fastload {

// Rows handed over at once: small enough that a chunk stays in the second-level cache.
inline constexpr int kChunkRows = 16;

// Scratch above this size is given back after the picture, so that one huge picture does not
// cost each thread its size for ever.
inline constexpr size_t kKeepScratch = size_t{8} << 20;

inline void trim_scratch(std::vector<uint8_t>& scratch) {
  if (scratch.capacity() > kKeepScratch) std::vector<uint8_t>().swap(scratch);
}

// Grows only: the contents are overwritten anyway, so nothing is cleared between pictures.
inline uint8_t* reserve_scratch(std::vector<uint8_t>& scratch, size_t size) {
  if (scratch.size() < size) scratch.resize(size);
  return scratch.data();
}

// Gives `rows` rows that lie in memory to the sink. kSlack readable bytes must follow the last one.
inline void emit_rows(RowSink& sink, const uint8_t* pixels, size_t stride, int rows,
                      int first = 0) {
  for (int y = 0; y < rows; y += kChunkRows) {
    sink.rows(pixels + static_cast<size_t>(y) * stride, stride, first + y,
              std::min(kChunkRows, rows - y));
  }
}

// Gives `roi` of a picture that lies in memory, row after row without gaps, to the sink. The last
// rows are copied where the sink's slack would lie behind the end of `pixels`.
void emit_picture(Bytes pixels, size_t width, size_t pixel_bytes, Rect roi,
                  std::vector<uint8_t>& scratch, RowSink& sink);

}  // namespace fastload
