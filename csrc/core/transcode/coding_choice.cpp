#include "transcode/coding_choice.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <limits>

#include "transcode/masks.h"

namespace fastload {
namespace {

constexpr size_t kRices = kMaxRice + 1;
// Values are counted in one of so many rows of blocks: a picture's rows are much alike, and any
// choice gives a right record.
constexpr size_t kCountedRow = 4;

// Bits of a value's planes, where those of its list go as deep as it does.
constexpr uint8_t value_bits(int magnitude, int rice) {
  const auto quotient = static_cast<unsigned>((magnitude - 1) >> rice) + 1;
  const int depth = std::bit_width(quotient) - 1;
  return static_cast<uint8_t>(1 + rice + depth + 1 + depth);
}

using Bits = std::array<uint32_t, kRices>;
constexpr size_t kKnownMagnitudes = 256;

const std::array<Bits, kKnownMagnitudes>& known_bits() {
  static const auto table = [] {
    std::array<Bits, kKnownMagnitudes> bits{};
    for (size_t magnitude = 1; magnitude < kKnownMagnitudes; ++magnitude) {
      for (size_t rice = 0; rice < kRices; ++rice) {
        bits[magnitude][rice] = value_bits(static_cast<int>(magnitude), static_cast<int>(rice));
      }
    }
    return bits;
  }();
  return table;
}

// What the values at each place of the blocks of each context would take, by Rice parameter.
struct ValueCosts {
  std::array<std::array<std::array<Bits, 64>, kMaskBytes + 1>, 2> bits{};

  void add(size_t kind, uint64_t mask, const int16_t* block) {
    auto& places = bits[kind][mask_bytes(mask)];
    for (uint64_t left = mask; left != 0; left &= left - 1) {
      const auto k = static_cast<size_t>(std::countr_zero(left)) + 1;
      const auto magnitude = static_cast<size_t>(std::abs(int{block[k]}));
      Bits& to = places[k];
      if (magnitude < kKnownMagnitudes) {
        const Bits& known = known_bits()[magnitude];
        for (size_t rice = 0; rice < kRices; ++rice) to[rice] += known[rice];
      } else {
        for (size_t rice = 0; rice < kRices; ++rice) {
          to[rice] += value_bits(static_cast<int>(magnitude), static_cast<int>(rice));
        }
      }
    }
  }
};

struct Split {
  uint64_t bits = std::numeric_limits<uint64_t>::max();
  uint8_t last_low = 0;
};

// Where list A ends best.
Split best_split(const std::array<Bits, 64>& places, size_t low, size_t high) {
  uint64_t bits = 0;
  for (const Bits& place : places) bits += place[high];
  Split best{bits, 0};
  for (size_t k = 1; k < 64; ++k) {
    bits += places[k][low];
    bits -= places[k][high];
    if (bits < best.bits) best = {bits, static_cast<uint8_t>(k)};
  }
  return best;
}

void choose_lists(const ValueCosts& costs, CoefficientRecord& record) {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (size_t low = 0; low < kRices; ++low) {
    for (size_t high = 0; high < kRices; ++high) {
      std::array<std::array<uint8_t, kMaskBytes + 1>, 2> last_low{};
      uint64_t bits = 0;
      for (size_t kind = 0; kind < 2; ++kind) {
        for (size_t count = 0; count <= kMaskBytes; ++count) {
          const Split split = best_split(costs.bits[kind][count], low, high);
          bits += split.bits;
          last_low[kind][count] = split.last_low;
        }
      }
      if (bits >= least) continue;
      least = bits;
      record.last_low = last_low;
      record.coding.rice = {static_cast<uint8_t>(low), static_cast<uint8_t>(high)};
    }
  }
  for (size_t kind = 0; kind < 2; ++kind) {
    for (size_t count = 0; count <= kMaskBytes; ++count) {
      record.coding.low[kind][count] =
          ~uint64_t{0} >> (63 - record.last_low[kind][count]) & ~uint64_t{1};
    }
  }
}

using LengthCounts = std::array<uint32_t, 64>;

// The kMaskClasses lengths for which all masks together are shortest, the longest mask's among
// them: by dynamic programming, over how many classes there are and which is the longest so far.
void choose_mask_lengths(const LengthCounts& counts, SegmentCoding& coding) {
  int longest = 63;
  while (longest > 0 && counts[static_cast<size_t>(longest)] == 0) --longest;
  std::array<uint64_t, 65> before{};  // masks shorter than so many bits
  for (size_t i = 0; i < 64; ++i) before[i + 1] = before[i] + counts[i];
  constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
  std::array<uint64_t, 64> cost{};
  std::array<std::array<uint8_t, 64>, kMaskClasses> from{};
  for (size_t length = 0; length < 64; ++length) cost[length] = length * before[length + 1];
  for (size_t used = 1; used < kMaskClasses; ++used) {
    std::array<uint64_t, 64> next;
    next.fill(kNever);
    for (size_t length = 0; length <= static_cast<size_t>(longest); ++length) {
      next[length] = cost[length];
      from[used][length] = static_cast<uint8_t>(length);
      for (size_t shorter = 0; shorter < length; ++shorter) {
        const uint64_t bits = cost[shorter] + length * (before[length + 1] - before[shorter + 1]);
        if (bits >= next[length]) continue;
        next[length] = bits;
        from[used][length] = static_cast<uint8_t>(shorter);
      }
    }
    cost = next;
  }
  auto length = static_cast<uint8_t>(longest);
  for (size_t used = kMaskClasses; used-- > 0; length = from[used][length]) {
    coding.mask_lengths[used] = length;
  }
}

}  // namespace

void choose_coding(const JpegParts& parts, CoefficientRecord& record) {
  ValueCosts costs;
  LengthCounts lengths{};
  for (int c = 0; c < parts.header.component_count; ++c) {
    const auto& component = parts.header.components[static_cast<size_t>(c)];
    const std::vector<int16_t>& blocks = parts.blocks[static_cast<size_t>(c)];
    const size_t row = static_cast<size_t>(parts.header.mcus_per_row) * component.h * 64;
    size_t number = 0;
    for (size_t at = 0; at < blocks.size(); at += row, ++number) {
      const bool is_counted = number % kCountedRow == 0;
      for (size_t block = at; block < at + row; block += 64) {
        const uint64_t mask = mask_of(&blocks[block]);
        ++lengths[static_cast<size_t>(std::bit_width(mask))];
        if (is_counted) costs.add(c > 0 ? 1 : 0, mask, &blocks[block]);
      }
    }
  }
  choose_lists(costs, record);
  record.coding.mask_lengths = {};
  if (record.coding.form == CoefficientForm::kFast) choose_mask_lengths(lengths, record.coding);
}

}  // namespace fastload
