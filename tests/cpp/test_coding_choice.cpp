// transcode/coding_kernels: every level of this machine against what is tried one by one.
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <vector>

#include "check.h"
#include "levels.h"
#include "random.h"
#include "transcode/coding_kernels.h"

namespace {

using namespace fastload;
using test::Random;

struct Blocks {
  std::vector<uint64_t> masks;
  std::vector<int16_t> values;
};

Blocks drawn_blocks(Random& random, int count) {
  Blocks blocks;
  const int largest = std::array{1, 20, 127, 300, 32760}[static_cast<size_t>(random.in(0, 4))];
  for (; count > 0; --count) {
    const int last = random.in(0, 63);
    uint64_t mask = 0;
    for (int k = 1; k <= last; ++k) {
      if (random.in(0, 63) < k) continue;
      int most = largest;
      while (most > 1 && random.coin()) most /= 2;
      const int magnitude = random.in(1, most);
      mask |= uint64_t{1} << k;
      blocks.values.push_back(static_cast<int16_t>(random.coin() ? magnitude : -magnitude));
    }
    blocks.masks.push_back(mask);
  }
  return blocks;
}

// As FORMAT.md writes a value, where its list's planes go as deep as it does.
uint32_t bits_of(int value, size_t rice) {
  const uint32_t q = ((static_cast<uint32_t>(std::abs(value)) - 1) >> rice) + 1;
  const auto e = static_cast<uint32_t>(std::bit_width(q)) - 1;
  return 1 + static_cast<uint32_t>(rice) + (e + 1) + e;
}

std::unique_ptr<ValueCosts> counted_one_by_one(const Blocks& blocks, size_t kind) {
  auto costs = std::make_unique<ValueCosts>();
  const int16_t* value = blocks.values.data();
  for (const uint64_t mask : blocks.masks) {
    const auto bytes = (static_cast<size_t>(std::bit_width(mask >> 1)) + 7) / 8;
    for (size_t k = 1; k < 64; ++k) {
      if ((mask >> k & 1) == 0) continue;
      for (size_t rice = 0; rice < kRices; ++rice) {
        costs->bits[kind][bytes][k][rice] += bits_of(*value, rice);
      }
      ++value;
    }
  }
  return costs;
}

TEST(values_are_counted_alike) {
  Random random(1);
  for (int round = 0; round < 60; ++round) {
    // Long enough for what a kernel counts apart to be full.
    Blocks blocks = drawn_blocks(random, round == 0 ? 60000 : random.in(1, 200));
    const auto kind = static_cast<size_t>(random.in(0, 1));
    const auto wanted = counted_one_by_one(blocks, kind);
    blocks.values.resize(blocks.values.size() + 64, int16_t{-32768});
    for (const SimdLevel level : test::machine_levels()) {
      const CodingKernels& kernels = coding_kernels(level);
      auto costs = std::make_unique<ValueCosts>();
      kernels.count(blocks.masks.data(), blocks.values.data(), blocks.masks.size(), kind, *costs);
      kernels.settle(*costs);
      CHECK(costs->bits == wanted->bits);
    }
  }
}

uint64_t bits_with(const ValueCosts& costs, const ListChoice& choice) {
  uint64_t bits = 0;
  for (size_t kind = 0; kind < 2; ++kind) {
    for (size_t count = 0; count <= kMaskBytes; ++count) {
      for (size_t k = 0; k < 64; ++k) {
        const bool is_low = k > 0 && k <= choice.last_low[kind][count];
        bits += costs.bits[kind][count][k][choice.rice[is_low ? 0 : 1]];
      }
    }
  }
  return bits;
}

// The shortest of all, the first of equals: in the order of Rice parameters, then of the place
// where list A ends.
ListChoice lists_one_by_one(const ValueCosts& costs) {
  ListChoice best{};
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (uint8_t low = 0; low < kRices; ++low) {
    for (uint8_t high = 0; high < kRices; ++high) {
      ListChoice choice{{low, high}, {}};
      for (size_t kind = 0; kind < 2; ++kind) {
        for (size_t count = 0; count <= kMaskBytes; ++count) {
          ListChoice tried = choice;
          for (uint8_t last = 1; last < 64; ++last) {
            tried.last_low[kind][count] = last;
            if (bits_with(costs, tried) < bits_with(costs, choice)) choice = tried;
          }
        }
      }
      if (bits_with(costs, choice) >= least) continue;
      least = bits_with(costs, choice);
      best = choice;
    }
  }
  return best;
}

TEST(lists_are_chosen_alike) {
  Random random(2);
  for (int round = 0; round < 6; ++round) {
    auto costs = counted_one_by_one(drawn_blocks(random, random.in(0, 60)), 0);
    costs->bits[1] = counted_one_by_one(drawn_blocks(random, random.in(0, 60)), 1)->bits[1];
    if (round == 5) {  // sums that take more than 32 bits
      for (auto& places : costs->bits[0]) {
        for (auto& place : places) {
          for (uint32_t& bits : place) bits <<= 20;
        }
      }
    }
    const ListChoice wanted = lists_one_by_one(*costs);
    for (const SimdLevel level : test::machine_levels()) {
      ListChoice found;
      coding_kernels(level).choose_lists(*costs, found);
      CHECK(found.rice == wanted.rice && found.last_low == wanted.last_low);
    }
  }
}

// The shortest way to a length with so many classes: of equals, the one that leaves a class unused,
// then the one over the shortest length.
MaskLengths lengths_one_by_one(const LengthCounts& counts) {
  size_t longest = 63;
  while (longest > 0 && counts[longest] == 0) --longest;
  std::array<std::array<uint64_t, 64>, kMaskClasses> cost{};
  std::array<std::array<size_t, 64>, kMaskClasses> from{};
  for (size_t used = 0; used < kMaskClasses; ++used) {
    uint64_t upto = 0;
    for (size_t length = 0; length < 64; ++length) {
      upto += counts[length];
      cost[used][length] = used == 0 ? length * upto : cost[used - 1][length];
      from[used][length] = length;
      uint64_t between = 0;  // masks longer than `shorter`
      std::array<uint64_t, 64> tried{};
      for (size_t shorter = length; used > 0 && shorter-- > 0;) {
        between += counts[shorter + 1];
        tried[shorter] = cost[used - 1][shorter] + length * between;
      }
      for (size_t shorter = 0; used > 0 && shorter < length; ++shorter) {
        if (tried[shorter] >= cost[used][length]) continue;
        cost[used][length] = tried[shorter];
        from[used][length] = shorter;
      }
    }
  }
  MaskLengths lengths{};
  for (size_t used = kMaskClasses; used-- > 0; longest = from[used][longest]) {
    lengths[used] = static_cast<uint8_t>(longest);
  }
  return lengths;
}

TEST(mask_lengths_are_chosen_alike) {
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    LengthCounts counts{};
    const int most = std::array{1, 5, 1000, 100000000}[static_cast<size_t>(random.in(0, 3))];
    for (int last = random.in(0, 63); last >= 0; --last) {
      if (random.in(0, 3) > 0) {
        counts[static_cast<size_t>(last)] = static_cast<uint32_t>(random.in(0, most));
      }
    }
    const MaskLengths wanted = lengths_one_by_one(counts);
    for (const SimdLevel level : test::machine_levels()) {
      MaskLengths found;
      coding_kernels(level).choose_lengths(counts, found);
      CHECK(found == wanted);
    }
  }
}

}  // namespace
