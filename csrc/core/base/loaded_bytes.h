// Which bytes of a record were fetched, where not all of them are needed.
#pragma once

#include <cstddef>

namespace fastload {

// The record's bytes [0, head) and [begin, end), one behind the other in memory. Where they meet
// there is one piece: head bytes, and begin == end == head.
struct LoadedBytes {
  size_t head = 0;
  size_t begin = 0, end = 0;

  [[nodiscard]] size_t size() const { return head + (end - begin); }
};

}  // namespace fastload
