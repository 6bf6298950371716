#include "decode/jpeg/bits.h"

#include <algorithm>

namespace fastload {

void ScanBytes::open(Bytes file, size_t begin, SimdLevel level) {
  file_ = file;
  next_ = begin;
  size_ = 0;
  ended_ = begin >= file.size();  // else take_until() would never find the end
  unstuff_ = FASTLOAD_KERNEL_AT(level, unstuff);
  // One huge file must not cost each thread its size for ever.
  if (buffer_.size() > kKeep) std::vector<uint8_t>().swap(buffer_);
  if (buffer_.size() < kSlack) buffer_.resize(kSlack);
}

void ScanBytes::require(size_t wanted) {
  while (size_ < wanted && !ended_) {
    size_t end = std::min(file_.size(), next_ + (wanted - size_) + 512);
    // Never between FF and its 00; a run of FF cannot be inside the data.
    if (end < file_.size() && file_[end - 1] == 0xFF) ++end;
    take_until(end);
  }
}

void ScanBytes::take_until(size_t offset) {
  offset = std::min(offset, file_.size());
  if (ended_ || offset <= next_) return;
  const size_t room = size_ + (offset - next_) + kSlack;
  if (buffer_.size() < room) buffer_.resize(room + room / 2);
  const uint8_t* const begin = file_.data() + next_;
  const UnstuffResult result = unstuff_(begin, file_.data() + offset, buffer_.data() + size_);
  next_ = static_cast<size_t>(result.source - file_.data());
  size_ = static_cast<size_t>(result.target - buffer_.data());
  ended_ = next_ < offset || offset == file_.size();
}

}  // namespace fastload
