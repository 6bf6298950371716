// As many blocks of a segment at a time as a vector has 128-bit parts: values to their places by
// shuffles of bytes. Part of transform_vector.cpp, for all but AVX-512.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "decode/coefficients/segment.h"
#include "decode/jpeg/idct_passes.h"
#include "decode/jpeg/parser.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

using Bytes = hn::Vec<hn::ScalableTag<uint8_t>>;
using Signed = hn::Vec<hn::ScalableTag<int8_t>>;
constexpr hn::Full128<uint8_t> kPart;
using Part = hn::Vec<hn::Full128<uint8_t>>;

// Eight values to the ones of a mask of eight places, as indices of TableLookupBytes: in the lower
// half of a vector, and in the upper one, whose values lie in its upper half. 0x80 leaves a zero.
struct Expansion {
  alignas(64) std::array<std::array<uint8_t, 8>, 256> lower, upper;
};
constexpr Expansion kExpansion = [] {
  Expansion expansion{};
  for (size_t mask = 0; mask < 256; ++mask) {
    uint8_t rank = 0;
    for (size_t i = 0; i < 8; ++i) {
      const bool is_one = (mask >> i & 1) != 0;
      expansion.lower[mask][i] = is_one ? rank : 0x80;
      expansion.upper[mask][i] = is_one ? static_cast<uint8_t>(8 + rank) : 0x80;
      rank = static_cast<uint8_t>(rank + (is_one ? 1 : 0));
    }
  }
  return expansion;
}();

constexpr std::array<size_t, 64> kZigzagPlace = [] {
  std::array<size_t, 64> places{};
  for (size_t k = 0; k < 64; ++k) places[kZigzag[k]] = k;
  return places;
}();

// From zig-zag order: pair of rows i takes bytes of source j by shuffle [i][j]; 0x80 takes none.
struct Shuffles {
  alignas(16) std::array<std::array<std::array<uint8_t, 16>, 4>, 4> take;
};
constexpr Shuffles kShuffles = [] {
  Shuffles shuffles{};
  for (size_t i = 0; i < 4; ++i) {
    for (auto& source : shuffles.take[i]) source.fill(0x80);
    for (size_t row = 0; row < 8; ++row) {
      for (size_t column = 0; column < 8; ++column) {
        const size_t place = kIdctPlaces[8 * row + column], vector = place / (8 * kIdctBlocks);
        if (vector / 2 != i) continue;
        const size_t k = kZigzagPlace[8 * row + column];
        shuffles.take[i][k / 16][vector % 2 * 8 + place % 8] = static_cast<uint8_t>(k % 16);
      }
    }
  }
  return shuffles;
}();

// A vector of the parts of each block.
template <class P>
Bytes join(const P* parts) {
  if constexpr (kIdctBlocks == 1) {
    return parts[0];
  } else {
    return hn::Combine(kBytes, parts[1], parts[0]);
  }
}
inline Part halves(const void* lower, const void* upper) {
#if defined(__x86_64__)
  const __m128i low = _mm_loadl_epi64(static_cast<const __m128i*>(lower));
  return Part{
      _mm_castps_si128(_mm_loadh_pi(_mm_castsi128_ps(low), static_cast<const __m64*>(upper)))};
#else
  const hn::Full64<uint8_t> d;
  return hn::Combine(kPart, hn::LoadU(d, static_cast<const uint8_t*>(upper)),
                     hn::LoadU(d, static_cast<const uint8_t*>(lower)));
#endif
}

// The AC values of blocks in zig-zag order, as bytes one behind the other. Those of list A come
// first in every block: what is above the last position of A is in B.
struct FlatBlocks {
  static constexpr size_t kMost = kSegmentPixels / 8 + 1;  // whole groups are read
  struct Values {
    std::array<int8_t, 128> low, high;
  };
  std::array<Values, kMost> blocks;
  uint32_t wide = 0;  // bit i: block i has values of more than a signed byte
};

constexpr hn::CappedTag<int8_t, 32> kRun;
inline auto load_run(const int8_t* from) { return hn::LoadU(kRun, from); }
// Up to 64 values, seldom more than 32.
inline void copy(const int8_t* from, size_t count, int8_t* to) {
  constexpr size_t kStep = hn::MaxLanes(kRun);
  for (size_t i = 0; i < 32; i += kStep) hn::StoreU(load_run(from + i), kRun, to + i);
  if (count <= 32) return;
  for (size_t i = 32; i < 64; i += kStep) hn::StoreU(load_run(from + i), kRun, to + i);
}

// Whether one of `count` values, at most 64, has a high byte that its low byte's sign does not say.
// They are read where they come from: what was stored just now, in parts, is slow to read.
inline bool any_large(const int8_t* low, const int8_t* high, size_t count) {
  constexpr size_t kStep = hn::MaxLanes(kRun);
  for (size_t i = 0; i < count; i += kStep) {
    const auto signs = hn::BroadcastSignBit(load_run(low + i));
    const auto used = hn::FirstN(kRun, count - i);
    if (!hn::AllFalse(kRun, hn::And(used, hn::Ne(signs, load_run(high + i))))) return true;
  }
  return false;
}

inline void flatten(const SegmentBlocks& blocks, size_t first, size_t count, FlatBlocks& flat) {
  for (size_t i = 0; i < count; ++i) {
    const size_t block = first + i;
    const auto in_a = static_cast<size_t>(std::popcount(blocks.lows[block]));
    const auto in_b = static_cast<size_t>(std::popcount(blocks.masks[block])) - in_a;
    const size_t a = blocks.starts[0][block], b = blocks.starts[1][block];
    FlatBlocks::Values& to = flat.blocks[i];
    const int8_t* const lows[2] = {&blocks.bytes[0][a], &blocks.bytes[1][b]};
    copy(lows[0], in_a, to.low.data());
    copy(lows[1], in_b, &to.low[in_a]);
    if (!blocks.is_wide) continue;
    const int8_t* const highs[2] = {&blocks.highs[0][a], &blocks.highs[1][b]};
    copy(highs[0], in_a, to.high.data());
    copy(highs[1], in_b, &to.high[in_a]);
    const bool is_wide = any_large(lows[0], highs[0], in_a) || any_large(lows[1], highs[1], in_b);
    flat.wide |= uint32_t{is_wide} << i;
  }
}

// Sixteen places in zig-zag order from `mask` on; `from` goes behind their values.
inline Part spread16(uint64_t mask, const int8_t*& from) {
  const size_t first = mask & 0xFF, second = mask >> 8 & 0xFF;
  const int8_t* const middle = from + std::popcount(first);
  const Part values = halves(from, middle);
  from = middle + std::popcount(second);
  return hn::TableLookupBytesOr0(
      values, halves(kExpansion.lower[first].data(), kExpansion.upper[second].data()));
}

// The values of a group of blocks, one in each part: pair of rows i in pairs[i], a byte each.
template <class Which>
inline void spread(const uint64_t* masks, const FlatBlocks::Values* flat, Which which,
                   Bytes* pairs) {
  const int8_t* from[kIdctBlocks];
  for (size_t b = 0; b < kIdctBlocks; ++b) from[b] = (flat[b].*which).data();
  for (size_t source = 0; source < 4; ++source) {
    Part parts[kIdctBlocks];
    for (size_t b = 0; b < kIdctBlocks; ++b) {
      parts[b] = spread16(masks[b] >> (16 * source), from[b]);
    }
    const Bytes all = join(parts);
    for (size_t i = 0; i < 4; ++i) {
      const Bytes taken = hn::TableLookupBytesOr0(
          all, hn::LoadDup128(kBytes, kShuffles.take[i][source].data()));
      pairs[i] = source == 0 ? taken : hn::Or(pairs[i], taken);
    }
  }
}

// Coefficients in [-kSmall, kSmall) overflow nowhere, and blocks with nothing below their first row
// are as all others.
constexpr int kSmall = 8192;

struct Steps {
  Pair rows[4];
  Pair corner;     // of rows 0 and 2, and 1 and 3
  bool are_small;  // a byte times one of them is within kSmall
};

// Words of which both bytes are a signed value, times small steps.
inline Words small_products(Bytes twice, Words steps) {
#if HWY_TARGET == HWY_AVX2
  return Words{_mm256_maddubs_epi16(steps.raw, twice.raw)};  // step * value + 0 * value
#elif HWY_TARGET == HWY_SSE4
  return Words{_mm_maddubs_epi16(steps.raw, twice.raw)};
#else
  return hn::Mul(hn::ShiftRight<8>(hn::BitCast(kWords, twice)), steps);
#endif
}
inline Pair small_products(Bytes bytes, Pair steps) {
  return {small_products(hn::InterleaveLower(kBytes, bytes, bytes), steps.first),
          small_products(hn::InterleaveUpper(kBytes, bytes, bytes), steps.second)};
}

// A group of the flat blocks, multiplied by the steps; without DC. False: they are not small.
// A function of its own, so that its second spread() leaves the usual way its registers.
[[gnu::noinline]] bool load_large(const uint64_t* masks, const FlatBlocks::Values* flat,
                                  bool is_wide, const Steps& steps, Pair* x) {
  Bytes low[4], high[4];
  spread(masks, flat, &FlatBlocks::Values::low, low);
  if (is_wide) {
    spread(masks, flat, &FlatBlocks::Values::high, high);
  } else {
    for (size_t p = 0; p < 4; ++p) {
      high[p] = hn::BitCast(kBytes, hn::BroadcastSignBit(hn::BitCast(kSignedBytes, low[p])));
    }
  }
  const Words half = hn::Set(kWords, kSmall);
  Words beyond = hn::Zero(kWords);
  for (size_t p = 0; p < 4; ++p) {
    const hn::RebindToUnsigned<hn::ScalableTag<int16_t>> d;
    const auto times = [d](Bytes values, Words step) {
      return hn::BitCast(kWords, hn::Mul(hn::BitCast(d, values), hn::BitCast(d, step)));
    };
    x[p] = {times(hn::InterleaveLower(kBytes, low[p], high[p]), steps.rows[p].first),
            times(hn::InterleaveUpper(kBytes, low[p], high[p]), steps.rows[p].second)};
    beyond = hn::Or(beyond, hn::Or(plus(x[p].first, half), plus(x[p].second, half)));
  }
  beyond = hn::And(beyond, hn::Set(kWords, static_cast<int16_t>(-2 * kSmall)));
  return hn::AllTrue(kWords, hn::Eq(beyond, hn::Zero(kWords)));
}

// The same for values of a byte and small steps.
inline void load_small(const uint64_t* masks, const FlatBlocks::Values* flat, const Steps& steps,
                       Pair* x) {
  Bytes low[4];
  spread(masks, flat, &FlatBlocks::Values::low, low);
  for (size_t p = 0; p < 4; ++p) x[p] = small_products(low[p], steps.rows[p]);
}

constexpr int32_t kRounding = 1 << 10;  // of the first pass

// What pass 1 adds to the sums of column 0: the rounding, and the DC.
struct Starts {
  static constexpr size_t kMost = kSegmentPixels / 8;
  alignas(32) std::array<int32_t, kMost> of_block;
  bool are_small;
};
inline Starts load_starts(const int16_t* dc, size_t count, uint16_t step) {
  Starts starts;
  Wide beyond = hn::Zero(kWide);
  for (size_t i = 0; i < Starts::kMost; i += hn::MaxLanes(kWide)) {
    const auto coefs = hn::LoadU(hn::Rebind<int16_t, hn::ScalableTag<int32_t>>(), dc + i);
    const Wide products = hn::Mul(hn::PromoteTo(kWide, coefs), hn::Set(kWide, step));
    const auto used = hn::Lt(hn::Iota(kWide, static_cast<int>(i)),
                             hn::Set(kWide, static_cast<int>(count)));
    const Wide offset = plus(products, hn::Set(kWide, kSmall));
    beyond = hn::Or(beyond, hn::IfThenElseZero(used, offset));
    hn::StoreU(plus(hn::ShiftLeft<13>(products), hn::Set(kWide, kRounding)), kWide,
               &starts.of_block[i]);
  }
  beyond = hn::And(beyond, hn::Set(kWide, -2 * kSmall));
  starts.are_small = hn::AllTrue(kWide, hn::Eq(beyond, hn::Zero(kWide)));
  return starts;
}

// The rounding of the first pass, and the DCs of a group's blocks.
inline Wide starts_of(const int32_t* starts) {
  const Wide rounding = hn::Set(kWide, kRounding);
#if HWY_TARGET == HWY_AVX2
  const __m256i dcs = _mm256_inserti128_si256(
      _mm256_castsi128_si256(_mm_cvtsi32_si128(starts[0])), _mm_cvtsi32_si128(starts[1]), 1);
  return Wide{_mm256_blend_epi32(rounding.raw, dcs, 0x11)};
#else
  return hn::InsertLane(rounding, 0, starts[0]);
#endif
}

// A group, multiplied by the steps but for the DCs, which its starts have.
inline void transform_group(const Pair* x, const int32_t* starts, uint8_t* out, size_t stride) {
  Words rows[8];
  idct_pass<11, true>(x, rows, starts_of(starts), hn::Set(kWide, kRounding));
  finish_idct(rows, out, stride);
}

// Blocks of which only these have values: rows and columns 0 to 3, up to place 13 of the zig-zag
// order. Six in ten chroma blocks are such.
constexpr std::array<size_t, 4> kCornerColumns{0, 2, 1, 3};  // so that pairs of the second pass meet
constexpr uint64_t kCorner = [] {
  uint64_t mask = 0;
  for (size_t k = 1; k < 14; ++k) mask |= uint64_t{kZigzag[k] / 8 < 4 && kZigzag[k] % 8 < 4} << k;
  return mask;
}();
// From zig-zag order: the pairs of rows 0 and 2, then of rows 1 and 3.
constexpr std::array<uint8_t, 16> kCornerOrder = [] {
  std::array<uint8_t, 16> order{};
  for (size_t i = 0; i < 16; ++i) {
    const size_t row = i / 8 + i % 2 * 2, k = kZigzagPlace[8 * row + kCornerColumns[i % 8 / 2]];
    order[i] = k < 14 ? static_cast<uint8_t>(k) : 0x80;
  }
  return order;
}();
alignas(32) constexpr std::array<uint8_t, 32> kOnesThenZeros = [] {
  std::array<uint8_t, 32> bytes{};
  for (size_t i = 0; i < 16; ++i) bytes[i] = 0xFF;
  return bytes;
}();

// The values of such a block in zig-zag order.
inline Part spread_corner(const SegmentBlocks& blocks, size_t block) {
  const uint64_t mask = blocks.masks[block];
  const auto of_a = static_cast<size_t>(std::popcount(blocks.lows[block]));
  const auto load = [](const int8_t* from) {
    return hn::LoadU(kPart, reinterpret_cast<const uint8_t*>(from));
  };
  const Part a = load(blocks.bytes[0].data() + blocks.starts[0][block]);
  // So that they lie behind those of list A.
  const Part b = load(blocks.bytes[1].data() + blocks.starts[1][block] - of_a);
  const auto is_a = hn::MaskFromVec(hn::LoadU(kPart, kOnesThenZeros.data() + 16 - of_a));
  uint64_t lower, upper;
  std::memcpy(&lower, kExpansion.lower[mask & 0xFF].data(), 8);
  std::memcpy(&upper, kExpansion.lower[mask >> 8].data(), 8);
  upper += static_cast<uint64_t>(std::popcount(mask & 0xFF)) * 0x0101010101010101;
  const hn::Full64<uint64_t> d;
  const auto places = hn::Combine(hn::Full128<uint64_t>(), hn::Set(d, upper), hn::Set(d, lower));
  return hn::TableLookupBytesOr0(hn::IfThenElse(is_a, a, b), hn::BitCast(kPart, places));
}

// The sums of columns or rows whose values 4 to 7 are zero, from the pairs (x0, x2) and (x1, x3).
// The constants are those of sums_of().
inline void corner_sums(Words even, Words odd, Wide start, Wide* sums) {
  const auto both = [&](size_t i, int x2, int x1, int x3) {
    const Wide a = plus(start, pair_products(kWide, even, factors(1 << 13, x2)));
    const Wide b = pair_products(kWide, odd, factors(x1, x3));
    sums[i] = plus(a, b);
    sums[7 - i] = minus(a, b);
  };
  both(0, 10703, 11363, 9633);
  both(1, 4433, 9633, -2259);
  both(2, -4433, 6437, -11362);
  both(3, -10703, 2260, -6436);
}

// The first or the second half of the 32-bit lanes of each part of a and b.
template <int kOdd>
Words alternate(Words a, Words b) {
#if HWY_TARGET == HWY_AVX2
  return Words{_mm256_castps_si256(_mm256_shuffle_ps(
      _mm256_castsi256_ps(a.raw), _mm256_castsi256_ps(b.raw), kOdd == 0 ? 0x88 : 0xDD))};
#else
  const auto wide = [](Words v) { return hn::BitCast(kWide, v); };
  return hn::BitCast(kWords, kOdd == 0 ? hn::ConcatEven(kWide, wide(b), wide(a))
                                       : hn::ConcatOdd(kWide, wide(b), wide(a)));
#endif
}

// Blocks from `first` to `last`; behind it once more.
inline void transform_corners(const SegmentBlocks& blocks, size_t first, size_t last,
                              const Pair& steps, const int32_t* starts, uint8_t* out,
                              size_t stride) {
  Part parts[kIdctBlocks];
  for (size_t b = 0; b < kIdctBlocks; ++b) {
    parts[b] = spread_corner(blocks, std::min(first + b, last));
  }
  const Bytes bytes =
      hn::TableLookupBytesOr0(join(parts), hn::LoadDup128(kBytes, kCornerOrder.data()));
  const Pair x = small_products(bytes, steps);
  Wide sums[8], lower_sums[8];
  corner_sums(x.first, x.second, starts_of(starts), sums);
  Words rows[4];
  for (size_t i = 0; i < 4; ++i) rows[i] = narrowed<11>(sums[2 * i], sums[2 * i + 1]);
  const Wide rounding = hn::Set(kWide, 1 << 17);
  corner_sums(alternate<0>(rows[0], rows[1]), alternate<1>(rows[0], rows[1]), rounding, sums);
  corner_sums(alternate<0>(rows[2], rows[3]), alternate<1>(rows[2], rows[3]), rounding, lower_sums);
  Words samples[8];
  for (size_t i = 0; i < 8; ++i) samples[i] = narrowed<18>(sums[i], lower_sums[i]);
  store_samples(samples, out, stride);
}

inline Steps load_all_steps(const uint16_t* steps) {
  Steps loaded;
  load_steps(steps, loaded.rows);
  const hn::ScalableTag<uint16_t> d;
  const auto row = [&](size_t i) { return hn::LoadDup128(d, steps + 8 * i); };
  alignas(16) static constexpr std::array<uint8_t, 16> kOrder{0, 1, 2,  3,  8,  9,  10, 11,
                                                              4, 5, 6,  7,  12, 13, 14, 15};
  const auto order = hn::LoadDup128(kBytes, kOrder.data());
  const auto pairs = [&](size_t a, size_t b) {
    return hn::BitCast(kWords, hn::TableLookupBytes(hn::InterleaveLower(d, row(a), row(b)), order));
  };
  loaded.corner = {pairs(0, 2), pairs(1, 3)};
  auto all = hn::Zero(d);
  for (size_t i = 0; i < 64; i += hn::MaxLanes(d)) all = hn::Or(all, hn::LoadU(d, steps + i));
  // The lowest six bits hold them.
  all = hn::AndNot(hn::Set(d, 63), all);
  loaded.are_small = hn::AllTrue(d, hn::Eq(all, hn::Zero(d)));
  return loaded;
}

}  // namespace

void transform_segment(const SegmentBlocks& blocks, size_t first, size_t count,
                       const uint16_t* steps, uint8_t* out, size_t stride) {
  const Steps loaded = load_all_steps(steps);
  const Starts starts = load_starts(&blocks.dc[first], count, steps[0]);
  uint64_t all = 0;
  for (size_t i = 0; i < count; ++i) all |= blocks.masks[first + i];
  // Whole rows only: which of the blocks are such cannot be foreseen.
  if ((all & ~kCorner) == 0 && loaded.are_small && starts.are_small && !blocks.is_wide) {
    for (size_t i = 0; i < count; i += kIdctBlocks) {
      transform_corners(blocks, first + i, first + count - 1, loaded.corner, &starts.of_block[i],
                        out + 8 * i, stride);
    }
    return;
  }
  FlatBlocks flat;
  flatten(blocks, first, count, flat);
  for (size_t i = 0; i < count; i += kIdctBlocks) {
    const size_t used = std::min(count - i, kIdctBlocks);
    uint64_t masks[kIdctBlocks];
    // A block behind the last one is not flat: it has no values here.
    for (size_t b = 0; b < kIdctBlocks; ++b) masks[b] = b < used ? blocks.masks[first + i + b] : 0;
    const FlatBlocks::Values* const values = &flat.blocks[i];
    const bool is_wide = (flat.wide >> i & ((1u << kIdctBlocks) - 1)) != 0;
    Pair x[4];
    bool is_small = starts.are_small;
    if (!is_wide && loaded.are_small) {
      load_small(masks, values, loaded, x);
    } else {
      is_small = is_small && load_large(masks, values, is_wide, loaded, x);
    }
    if (is_small) {
      transform_group(x, &starts.of_block[i], out + 8 * i, stride);
    } else {
      transform_by_idct(blocks, first + i, used, steps, out + 8 * i, stride);
    }
  }
}

}  // namespace fastload::FASTLOAD_LEVEL
