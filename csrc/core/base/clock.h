// The time that stages are measured with.
#pragma once

#include <chrono>
#include <cstdint>

namespace fastload {

// Nanoseconds on a clock that only goes forward.
inline uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace fastload
