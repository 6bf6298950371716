// Samples into packs of bounded size: best fit decreasing over one window of an epoch's order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sampler/shuffle.h"

namespace fastload {

inline constexpr size_t kPackWindow = 4096;  // positions that are packed together
inline constexpr size_t kPackBounds = 3;     // of a pack; the first one decides the fit

// What bounds a pack, and how much of it each sample has. Unused amounts are empty.
struct PackBounds {
  size_t count = 1;
  std::array<int32_t, kPackBounds> most{};
  std::array<std::span<const int32_t>, kPackBounds> amounts{};
};

// Packs windows, one at a time. Integers only, so that every machine makes the same packs.
class Packer {
 public:
  // Packs samples 0 to count - 1 of the bounds' amounts, count being at most kPackWindow. In the
  // order of (first amount descending, number ascending), each goes into the open pack with the
  // least room left that takes it, the oldest of equals; a pack is opened where there is none.
  // Returns the number of packs. Throws kValue where an amount is negative or beyond its bound.
  size_t pack(const PackBounds& bounds, size_t count);

  // The pack of each sample.
  [[nodiscard]] std::span<const uint16_t> packs() const noexcept { return packs_; }

  // The samples pack by pack, in ascending order in each, and where each pack ends.
  void list(std::vector<uint32_t>& members, std::vector<uint32_t>& ends) const;

  // The most samples in one pack.
  [[nodiscard]] size_t largest() const noexcept;

 private:
  void sort(const PackBounds& bounds, size_t count);
  [[nodiscard]] bool takes(const PackBounds& bounds, size_t pack, size_t sample) const noexcept;
  void place(const PackBounds& bounds, size_t sample);

  std::vector<uint64_t> order_;  // of the samples
  std::vector<uint64_t> open_;   // room << 32 | number of the pack, in descending order
  std::vector<uint16_t> packs_;
  std::vector<uint32_t> sizes_;  // samples of each pack
  std::vector<std::array<int32_t, kPackBounds>> rooms_;
  std::array<int32_t, kPackBounds> least_{};  // amounts in the window
};

// Counts of one window.
struct PackCounts {
  uint32_t packs;
  uint32_t largest;  // samples in a pack
};

// Counts the packs of windows [first, last) of an order: the amounts' own, or their shuffle by
// keys.
std::vector<PackCounts> count_packs(const PackBounds& bounds,
                                    const std::optional<ShuffleKeys>& keys, size_t first,
                                    size_t last);

}  // namespace fastload
