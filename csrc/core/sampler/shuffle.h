// The keyed shuffle of an epoch's positions, as fastload/sampler/order.py defines it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fastload {

inline constexpr size_t kShuffleRounds = 12;
using ShuffleKeys = std::array<uint64_t, kShuffleRounds>;

// A bijection of [0, n): a Feistel network over the next power of two, walked until it is inside.
class Shuffle {
 public:
  // n: at least 1.
  Shuffle(uint64_t n, const ShuffleKeys& keys)
      : n_(n),
        keys_(keys),
        low_bits_(static_cast<unsigned>(std::bit_width(n - 1)) / 2),
        low_mask_((uint64_t{1} << low_bits_) - 1),
        high_mask_((uint64_t{1} << (static_cast<unsigned>(std::bit_width(n - 1)) - low_bits_)) -
                   1) {}

  // The ids at positions [begin, begin + ids.size()), all of them below n. In rounds over all, as
  // the walk of each by itself is a branch that nothing predicts.
  void ids(uint64_t begin, std::span<uint64_t> ids) {
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = once(begin + i);
    outside_.resize(ids.size());
    size_t count = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      outside_[count] = static_cast<uint32_t>(i);
      count += ids[i] >= n_ ? 1 : 0;
    }
    while (count != 0) {
      size_t left = 0;
      for (size_t i = 0; i < count; ++i) {
        const uint32_t at = outside_[i];
        ids[at] = once(ids[at]);
        outside_[left] = at;
        left += ids[at] >= n_ ? 1 : 0;
      }
      count = left;
    }
  }

 private:
  // SplitMix64's finaliser (Steele, Lea and Flood, 2014).
  static uint64_t mix(uint64_t value, uint64_t key) noexcept {
    value += key;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
    return value ^ (value >> 31);
  }

  [[nodiscard]] uint64_t once(uint64_t value) const noexcept {
    uint64_t low = value & low_mask_;
    uint64_t high = value >> low_bits_;
    for (size_t round = 0; round < kShuffleRounds; round += 2) {
      high = (high ^ mix(low, keys_[round])) & high_mask_;
      low = (low ^ mix(high, keys_[round + 1])) & low_mask_;
    }
    return high << low_bits_ | low;
  }

  uint64_t n_;
  ShuffleKeys keys_;
  unsigned low_bits_;
  uint64_t low_mask_;
  uint64_t high_mask_;
  std::vector<uint32_t> outside_;  // scratch
};

}  // namespace fastload
