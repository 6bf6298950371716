// The blocks of a picture as masks and lists of nonzero coefficients, in the order of a record's
// segments: what the segments' writer and the Huffman coder need of them, in a few bytes each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/kernels.h"
#include "decode/coefficients/segment.h"

namespace fastload {

// A block: bit k, 1..63, of its mask says that coefficient k in zig-zag order is not zero; those
// that are not, in this order.
struct ListedBlock {
  uint64_t mask;
  const int16_t* values;
  int16_t dc;
};

// The blocks of a segment. 8 more of dc and 64 more values can be read.
struct ListedSegment {
  const uint64_t* masks;
  const int16_t* dc;
  const int16_t* values;
  size_t count;  // of values
};

// Where blocks are put, one behind the other.
struct ListEnd {
  uint64_t* masks;
  int16_t* dc;
  size_t* starts;
  int16_t* values;
  size_t used;       // of values; 64 more are written
  uint16_t largest;  // magnitude of all AC coefficients
};

// Puts `count` blocks of 64 coefficients, which become zeros.
using ListBlocks = void (*)(int16_t* blocks, size_t count, ListEnd& end);
// Puts those of an unpacked segment.
using ListSegment = void (*)(const SegmentBlocks& blocks, size_t count, ListEnd& end);

struct ListKernels {
  ListBlocks blocks;
  ListSegment segment;
};
FASTLOAD_KERNEL(extern const ListKernels kLists);
inline const ListKernels& list_kernels(SimdLevel level) {
  return FASTLOAD_KERNEL_AT(level, kLists);
}

class BlockLists {
 public:
  // Forgets all blocks: they are to be those of a picture of this header.
  void open(const JpegHeader& header);

  [[nodiscard]] int segment_mcus() const { return segment_mcus_; }
  [[nodiscard]] size_t segments_per_row() const { return segments_per_row_; }
  [[nodiscard]] size_t segment_count() const { return segments_per_row_ * rows_; }
  [[nodiscard]] const SegmentShape& shape(size_t segment_in_row) const {
    return segment_in_row + 1 == segments_per_row_ ? last_ : whole_;
  }
  // Its first block.
  [[nodiscard]] size_t begin(size_t row, size_t segment_in_row) const {
    return row * row_blocks_ + segment_in_row * whole_.block_count;
  }

  // The next blocks, by either kernel.
  void add(int16_t* blocks, size_t count) { kernels_->blocks(blocks, count, end_for(count)); }
  void add(const SegmentBlocks& blocks, size_t count) {
    kernels_->segment(blocks, count, end_for(count));
  }
  // To be called behind the last one.
  void close();

  // Whether both have the same blocks.
  bool operator==(const BlockLists& other) const;

  [[nodiscard]] size_t size() const { return listed_; }
  [[nodiscard]] ListedBlock block(size_t at) const {
    return {masks_[at], values_.data() + starts_[at], dc_[at]};
  }
  [[nodiscard]] ListedSegment segment(size_t row, size_t segment_in_row) const {
    const size_t first = begin(row, segment_in_row);
    const size_t end = first + shape(segment_in_row).block_count;
    return {masks_.data() + first, dc_.data() + first, values_.data() + starts_[first],
            starts_[end] - starts_[first]};
  }
  [[nodiscard]] const uint64_t* masks() const { return masks_.data(); }
  [[nodiscard]] const int16_t* dc() const { return dc_.data(); }
  [[nodiscard]] uint16_t largest() const { return end_.largest; }
  // Of each component: [row of blocks][column][64] in zig-zag order. As many blocks as whole MCUs
  // have: mcu_rows * v rows of mcus_per_row * h.
  [[nodiscard]] std::array<std::vector<int16_t>, 3> planes(const JpegHeader& header) const;
  // Number of the block of a component.
  [[nodiscard]] size_t number_of(const JpegHeader& header, size_t component, size_t row,
                                 size_t column) const;
  // Gives memory back where it is more than a thread should keep.
  void shrink();

 private:
  static constexpr size_t kSlack = 8;

  ListEnd& end_for(size_t blocks);

  SegmentShape whole_, last_;  // of segments, and of a row's last one
  int segment_mcus_ = 1;
  size_t segments_per_row_ = 0, rows_ = 0, row_blocks_ = 0;
  const ListKernels* kernels_ = nullptr;
  size_t listed_ = 0;
  ListEnd end_{};
  std::vector<uint64_t> masks_;
  std::vector<int16_t> dc_;
  std::vector<size_t> starts_;  // one more than blocks
  std::vector<int16_t> values_;
};

}  // namespace fastload
