// Per-stage clocks of the decoding threads: written by one thread each, summed by anyone.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "decode/decode.h"

namespace fastload {

enum class Stage : uint8_t { kShard = 0, kDecode = 1, kTransform = 2, kIdle = 3 };
inline constexpr size_t kStages = 4;

// One cache line's worth and more for each thread, so that threads do not share lines.
struct alignas(128) ThreadStats {
  std::array<std::atomic<uint64_t>, kStages> nanoseconds{};
  std::array<std::atomic<uint64_t>, kPaths> records{};  // by decoding path, as DecodeCounts
  std::atomic<uint64_t> samples{0};
  std::atomic<uint64_t> bytes{0};  // encoded bytes read
  std::atomic<uint64_t> faults{0};

  // Only the owning thread writes, so a plain load and store suffice.
  static void add(std::atomic<uint64_t>& counter, uint64_t value) {
    counter.store(counter.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
  }
  void add_time(Stage stage, uint64_t ns) { add(nanoseconds[static_cast<size_t>(stage)], ns); }
};

}  // namespace fastload
