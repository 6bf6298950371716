// The counting and comparing behind choose_coding().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/kernels.h"
#include "decode/coefficients/segment.h"

namespace fastload {

constexpr size_t kRices = kMaxRice + 1;

// What the values at each place of the blocks of each context (luma or chroma, bytes of the mask)
// would take, by Rice parameter, in bits.
struct ValueCosts {
  using Bits = std::array<uint32_t, kRices>;
  using Places = std::array<Bits, 64>;
  std::array<std::array<Places, kMaskBytes + 1>, 2> bits{};

  // A kernel's own counts, which settle() adds to `bits`.
  struct Pending {
    alignas(64) std::array<std::array<uint16_t, 64>, kRices> sums;
    size_t blocks;
  };
  std::array<std::array<Pending, kMaskBytes + 1>, 2> pending{};
};

// Which values are in list A, and both lists' Rice parameters.
struct ListChoice {
  std::array<uint8_t, 2> rice;
  std::array<std::array<uint8_t, kMaskBytes + 1>, 2> last_low;
};

using LengthCounts = std::array<uint32_t, 64>;  // masks of each length
using MaskLengths = std::array<uint8_t, kMaskClasses>;

struct CodingKernels {
  // Adds `count` blocks (block_lists.h), whose values follow each other; 64 more can be read.
  void (*count)(const uint64_t* masks, const int16_t* values, size_t count, size_t kind,
                ValueCosts& costs);
  void (*settle)(ValueCosts& costs);
  // The choice with which all values are shortest; the first of equals.
  void (*choose_lists)(const ValueCosts& costs, ListChoice& choice);
  // The kMaskClasses lengths for which all masks together are shortest, the longest mask's among
  // them.
  void (*choose_lengths)(const LengthCounts& counts, MaskLengths& lengths);
};
FASTLOAD_KERNEL(extern const CodingKernels kCoding);
inline const CodingKernels& coding_kernels(SimdLevel level) {
  return FASTLOAD_KERNEL_AT(level, kCoding);
}

}  // namespace fastload
