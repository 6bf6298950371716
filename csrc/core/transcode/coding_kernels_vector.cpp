// Counting and comparing in loops of lengths that the compiler knows, without branches, so that it
// vectorises them.
#include <bit>
#include <limits>

#include "transcode/coding_kernels.h"
// Behind the others:
#include "base/highway.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

// Bits of a value's planes, where those of its list go as deep as it does.
constexpr uint8_t value_bits(int magnitude, int rice) {
  const auto quotient = static_cast<unsigned>((magnitude - 1) >> rice) + 1;
  const int depth = std::bit_width(quotient) - 1;
  return static_cast<uint8_t>(1 + rice + depth + 1 + depth);
}

constexpr size_t kKnownMagnitudes = 256;
constexpr std::array<ValueCosts::Bits, kKnownMagnitudes> kKnownBits = [] {
  std::array<ValueCosts::Bits, kKnownMagnitudes> bits{};
  for (size_t magnitude = 1; magnitude < kKnownMagnitudes; ++magnitude) {
    for (size_t rice = 0; rice < kRices; ++rice) {
      bits[magnitude][rice] = value_bits(static_cast<int>(magnitude), static_cast<int>(rice));
    }
  }
  return bits;
}();

size_t context_of(uint64_t mask) {
  return (static_cast<size_t>(std::bit_width(mask >> 1)) + 7) / 8;
}

// Value by value.
void count_block(uint64_t mask, const int16_t* values, ValueCosts::Places& places) {
  for (; mask != 0; mask &= mask - 1) {
    ValueCosts::Bits& to = places[static_cast<size_t>(std::countr_zero(mask))];
    const int value = *values++;
    const int magnitude = value < 0 ? -value : value;
    if (static_cast<size_t>(magnitude) < kKnownMagnitudes) {
      const ValueCosts::Bits& known = kKnownBits[static_cast<size_t>(magnitude)];
      for (size_t rice = 0; rice < kRices; ++rice) to[rice] += known[rice];
    } else {
      for (size_t rice = 0; rice < kRices; ++rice) {
        to[rice] += value_bits(magnitude, static_cast<int>(rice));
      }
    }
  }
}

#if HWY_TARGET == HWY_AVX3

// Before a sum of 16 bits is full: a value below 128 takes at most 16 bits.
constexpr size_t kMostPending = 4000;

// For each Rice parameter the bits of the magnitudes 0 to 127.
alignas(64) constexpr std::array<std::array<uint8_t, 128>, kRices> kBits = [] {
  std::array<std::array<uint8_t, 128>, kRices> bits{};
  for (size_t rice = 0; rice < kRices; ++rice) {
    for (size_t magnitude = 0; magnitude < 128; ++magnitude) {
      bits[rice][magnitude] = static_cast<uint8_t>(kKnownBits[magnitude][rice]);
      if (bits[rice][magnitude] > 16) throw "a sum may overflow";
    }
  }
  return bits;
}();

void settle_context(ValueCosts::Pending& pending, ValueCosts::Places& places) {
  for (size_t k = 0; k < 64; ++k) {
    for (size_t rice = 0; rice < kRices; ++rice) places[k][rice] += pending.sums[rice][k];
  }
  pending = {};
}

// Block by block: each value's magnitude at its place, and its bits by look-up.
void count(const uint64_t* masks, const int16_t* values, size_t blocks, size_t kind,
           ValueCosts& costs) {
  __m512i low_bits[kRices], high_bits[kRices];
  for (size_t rice = 0; rice < kRices; ++rice) {
    low_bits[rice] = _mm512_load_si512(kBits[rice].data());
    high_bits[rice] = _mm512_load_si512(kBits[rice].data() + 64);
  }
  for (size_t i = 0; i < blocks; ++i) {
    const uint64_t mask = masks[i];
    const int16_t* const from = values;
    values += std::popcount(mask);
    const size_t context = context_of(mask);
    const __m256i first = _mm512_cvtusepi16_epi8(_mm512_abs_epi16(_mm512_loadu_si512(from)));
    const __m256i second = _mm512_cvtusepi16_epi8(_mm512_abs_epi16(_mm512_loadu_si512(from + 32)));
    const __m512i magnitudes = _mm512_maskz_expand_epi8(
        mask, _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1));
    if (_mm512_movepi8_mask(magnitudes) != 0) {
      count_block(mask, from, costs.bits[kind][context]);
      continue;
    }
    ValueCosts::Pending& pending = costs.pending[kind][context];
    for (size_t rice = 0; rice < kRices; ++rice) {
      const __m512i bits = _mm512_permutex2var_epi8(low_bits[rice], magnitudes, high_bits[rice]);
      uint16_t* const sums = pending.sums[rice].data();
      const __m512i low = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(bits));
      const __m512i high = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(bits, 1));
      _mm512_store_si512(sums, _mm512_add_epi16(_mm512_load_si512(sums), low));
      _mm512_store_si512(sums + 32, _mm512_add_epi16(_mm512_load_si512(sums + 32), high));
    }
    if (++pending.blocks == kMostPending) settle_context(pending, costs.bits[kind][context]);
  }
}

void settle(ValueCosts& costs) {
  for (size_t kind = 0; kind < 2; ++kind) {
    for (size_t context = 0; context <= kMaskBytes; ++context) {
      if (costs.pending[kind][context].blocks == 0) continue;
      settle_context(costs.pending[kind][context], costs.bits[kind][context]);
    }
  }
}

#else

void count(const uint64_t* masks, const int16_t* values, size_t blocks, size_t kind,
           ValueCosts& costs) {
  for (size_t i = 0; i < blocks; ++i) {
    count_block(masks[i], values, costs.bits[kind][context_of(masks[i])]);
    values += std::popcount(masks[i]);
  }
}
void settle(ValueCosts&) {}

#endif

// For each pair of Rice parameters, number kRices * A's + B's.
constexpr size_t kPairs = kRices * kRices;
template <class Sum>
struct PairSplits {
  alignas(64) std::array<Sum, kPairs> bits;
  alignas(64) std::array<Sum, kPairs> last_low;
};

// Where list A ends best in a context.
template <class Sum>
void split_context(const ValueCosts::Places& places, PairSplits<Sum>& best) {
  alignas(64) std::array<Sum, kPairs> bits{};
  for (const ValueCosts::Bits& place : places) {
    for (size_t pair = 0; pair < kPairs; ++pair) bits[pair] += place[pair % kRices];
  }
  best.bits = bits;
  best.last_low = {};
  for (size_t k = 1; k < 64; ++k) {
    for (size_t pair = 0; pair < kPairs; ++pair) {
      bits[pair] += static_cast<Sum>(places[k][pair / kRices]) - places[k][pair % kRices];
      const bool is_better = bits[pair] < best.bits[pair];
      best.bits[pair] = is_better ? bits[pair] : best.bits[pair];
      best.last_low[pair] = is_better ? static_cast<Sum>(k) : best.last_low[pair];
    }
  }
}

template <class Sum>
void choose_lists_by(const ValueCosts& costs, ListChoice& choice) {
  std::array<std::array<PairSplits<Sum>, kMaskBytes + 1>, 2> splits;
  std::array<uint64_t, kPairs> bits{};
  for (size_t kind = 0; kind < 2; ++kind) {
    for (size_t count = 0; count <= kMaskBytes; ++count) {
      split_context(costs.bits[kind][count], splits[kind][count]);
      for (size_t pair = 0; pair < kPairs; ++pair) bits[pair] += splits[kind][count].bits[pair];
    }
  }
  size_t best = 0;
  for (size_t pair = 1; pair < kPairs; ++pair) best = bits[pair] < bits[best] ? pair : best;
  choice.rice = {static_cast<uint8_t>(best / kRices), static_cast<uint8_t>(best % kRices)};
  for (size_t kind = 0; kind < 2; ++kind) {
    for (size_t count = 0; count <= kMaskBytes; ++count) {
      choice.last_low[kind][count] = static_cast<uint8_t>(splits[kind][count].last_low[best]);
    }
  }
}

void choose_lists(const ValueCosts& costs, ListChoice& choice) {
  uint64_t all = 0;
  for (const auto& kind : costs.bits) {
    for (const ValueCosts::Places& places : kind) {
      for (const ValueCosts::Bits& place : places) {
        for (const uint32_t bits : place) all += bits;
      }
    }
  }
  if (all <= std::numeric_limits<uint32_t>::max()) {
    choose_lists_by<uint32_t>(costs, choice);
  } else {
    choose_lists_by<uint64_t>(costs, choice);
  }
}

// Dynamic programming, over how many classes there are and which is the longest so far. All longer
// ones are tried at once from each shorter one.
template <class Sum>
void choose_lengths_by(const LengthCounts& counts, MaskLengths& lengths) {
  constexpr size_t kLanes = 16;
  alignas(64) std::array<Sum, 64> number;  // of the same width as all else, for vectors' sake
  alignas(64) std::array<Sum, 64> upto;    // masks of at most so many bits
  alignas(64) std::array<Sum, 64> cost, next;
  alignas(64) std::array<std::array<Sum, 64>, kMaskClasses> from;
  size_t longest = 0;
  Sum masks = 0;
  for (size_t length = 0; length < 64; ++length) {
    masks += counts[length];
    if (counts[length] > 0) longest = length;
    upto[length] = masks;
    number[length] = static_cast<Sum>(length);
    cost[length] = number[length] * masks;
  }
  for (size_t used = 1; used < kMaskClasses; ++used) {
    next = cost;
    from[used] = number;
    for (size_t shorter = 0; shorter < longest; ++shorter) {
      const Sum before = cost[shorter], there = upto[shorter];
      for (size_t group = (shorter + 1) / kLanes * kLanes; group < 64; group += kLanes) {
        for (size_t lane = group; lane < group + kLanes; ++lane) {
          const Sum bits = before + number[lane] * (upto[lane] - there);
          // Both without a branch, for the compiler to make vectors of.
          const int is_better = int{bits < next[lane]} & int{number[lane] > number[shorter]};
          next[lane] = is_better != 0 ? bits : next[lane];
          from[used][lane] = is_better != 0 ? number[shorter] : from[used][lane];
        }
      }
    }
    cost = next;
  }
  lengths[kMaskClasses - 1] = static_cast<uint8_t>(longest);
  for (size_t used = kMaskClasses - 1; used > 0; --used) {
    longest = static_cast<size_t>(from[used][longest]);
    lengths[used - 1] = static_cast<uint8_t>(longest);
  }
}

void choose_lengths(const LengthCounts& counts, MaskLengths& lengths) {
  uint64_t masks = 0;
  for (const uint32_t count : counts) masks += count;
  if (masks < std::numeric_limits<uint32_t>::max() / 64) {
    choose_lengths_by<uint32_t>(counts, lengths);
  } else {
    choose_lengths_by<uint64_t>(counts, lengths);
  }
}

}  // namespace

constinit const CodingKernels kCoding{count, settle, choose_lists, choose_lengths};

}  // namespace fastload::FASTLOAD_LEVEL
