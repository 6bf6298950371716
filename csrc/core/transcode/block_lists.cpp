#include "transcode/block_lists.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace fastload {
namespace {

constexpr size_t kKeep = size_t{8} << 20;  // bytes of a vector that a thread keeps

template <class T>
void shrink_vector(std::vector<T>& vector) {
  if (vector.capacity() * sizeof(T) > kKeep) std::vector<T>().swap(vector);
}

}  // namespace

void BlockLists::open(const JpegHeader& header) {
  segment_mcus_ = coefficient_segment_mcus(header);
  const auto mcus = static_cast<size_t>(header.mcus_per_row);
  const auto most = static_cast<size_t>(segment_mcus_);
  segments_per_row_ = (mcus + most - 1) / most;
  rows_ = static_cast<size_t>(header.mcu_rows);
  whole_ = segment_shape(header, segment_mcus_);
  last_ = segment_shape(header, static_cast<int>(mcus - (segments_per_row_ - 1) * most));
  row_blocks_ = (segments_per_row_ - 1) * whole_.block_count + last_.block_count;
  const size_t blocks = rows_ * row_blocks_;
  masks_.resize(blocks);
  dc_.resize(blocks + kSlack);
  starts_.resize(blocks + 1);
  kernels_ = &list_kernels(simd_level());
  listed_ = 0;
  end_ = {};
}

ListEnd& BlockLists::end_for(size_t blocks) {
  const size_t room = end_.used + 64 * (blocks + 1);
  if (values_.size() < room) values_.resize(std::max(room, 2 * values_.size()));
  end_.masks = masks_.data() + listed_;
  end_.dc = dc_.data() + listed_;
  end_.starts = starts_.data() + listed_;
  end_.values = values_.data();
  listed_ += blocks;
  return end_;
}

void BlockLists::close() { starts_.back() = end_.used; }

bool BlockLists::operator==(const BlockLists& other) const {
  const auto have_same = [](const auto& a, const auto& b, size_t count) {
    return count == 0 || std::memcmp(a.data(), b.data(), count * sizeof a[0]) == 0;
  };
  // How many values each block has follows from its mask.
  return size() == other.size() && end_.used == other.end_.used &&
         have_same(masks_, other.masks_, size()) && have_same(dc_, other.dc_, size()) &&
         have_same(values_, other.values_, end_.used);
}

size_t BlockLists::number_of(const JpegHeader& header, size_t component, size_t row,
                             size_t column) const {
  const JpegComponent& of = header.components[component];
  const auto columns = static_cast<size_t>(segment_mcus_) * of.h;  // of a segment
  const size_t segment = column / columns;
  const SegmentShape& its = shape(segment);
  size_t at = begin(row / of.v, segment) + column % columns;
  size_t left = row % of.v;
  for (size_t r = 0; its.component[r] != component || left-- > 0; ++r) at += its.blocks[r];
  return at;
}

std::array<std::vector<int16_t>, 3> BlockLists::planes(const JpegHeader& header) const {
  std::array<std::vector<int16_t>, 3> all;
  for (size_t c = 0; c < static_cast<size_t>(header.component_count); ++c) {
    const size_t rows = rows_ * header.components[c].v;
    const auto columns = static_cast<size_t>(header.mcus_per_row) * header.components[c].h;
    all[c].resize(rows * columns * 64);
    int16_t* to = all[c].data();
    for (size_t row = 0; row < rows; ++row) {
      for (size_t column = 0; column < columns; ++column, to += 64) {
        ListedBlock listed = block(number_of(header, c, row, column));
        to[0] = listed.dc;
        for (uint64_t left = listed.mask; left != 0; left &= left - 1) {
          to[std::countr_zero(left)] = *listed.values++;
        }
      }
    }
  }
  return all;
}

void BlockLists::shrink() {
  shrink_vector(masks_);
  shrink_vector(dc_);
  shrink_vector(starts_);
  shrink_vector(values_);
}

}  // namespace fastload
