// Two blocks of a segment at a time. Part of transform_vector.cpp, for AVX2.
#pragma once

#include <array>
#include <bit>

#include "decode/coefficients/segment.h"
#include "decode/jpeg/idct_passes.h"
#include "decode/jpeg/parser.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

// Eight values to the ones of a mask of eight places, as pshufb indices: in the lower half of a
// vector, and in the upper one, whose values lie in its upper half. 0x80 leaves a zero.
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

// From zig-zag order: pair of rows i takes bytes of source j by shuffle [i][j]; 0x80 takes none.
struct Shuffles {
  alignas(32) std::array<std::array<std::array<uint8_t, 32>, 4>, 4> take;
};
constexpr Shuffles kShuffles = [] {
  std::array<size_t, 64> zigzag{};
  for (size_t k = 0; k < 64; ++k) zigzag[kZigzag[k]] = k;
  Shuffles shuffles{};
  for (size_t i = 0; i < 4; ++i) {
    for (auto& source : shuffles.take[i]) source.fill(0x80);
    for (size_t to = 0; to < 16; ++to) {
      const size_t k = zigzag[8 * kIdctPairs[i][to % 2] + kIdctOrder[to / 2]];
      for (size_t lane = 0; lane < 32; lane += 16) {
        shuffles.take[i][k / 16][lane + to] = static_cast<uint8_t>(k % 16);
      }
    }
  }
  return shuffles;
}();

// The AC values of a row's blocks in zig-zag order, as bytes one behind the other. Those of list A
// come first in every block: what is above the last position of A is in B.
struct FlatBlocks {
  static constexpr size_t kMost = kSegmentPixels / 8 + 1;  // whole pairs are read
  struct Bytes {
    std::array<int8_t, 128> low, high;
  };
  std::array<Bytes, kMost> blocks;
  uint32_t wide;  // bit i: block i has values of more than a signed byte
};

inline __m256i load32(const int8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
// Up to 64 values, seldom more than 32.
inline void copy(const int8_t* from, size_t count, int8_t* to) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), load32(from));
  if (count > 32) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32), load32(from + 32));
}

// Whether one of `count` values, at most 64, has a high byte that its low byte's sign does not say.
// They are read where they come from: what was stored just now, in parts, is slow to read.
inline bool any_large(const int8_t* low, const int8_t* high, size_t count) {
  uint64_t large = 0;
  for (size_t i = 0; i < count; i += 32) {
    const __m256i sign = _mm256_cmpgt_epi8(_mm256_setzero_si256(), load32(low + i));
    const __m256i is_same = _mm256_cmpeq_epi8(sign, load32(high + i));
    large |= uint64_t{~static_cast<uint32_t>(_mm256_movemask_epi8(is_same))} << i;
  }
  return _bzhi_u64(large, static_cast<unsigned>(count)) != 0;
}

void flatten(const SegmentBlocks& blocks, size_t first, size_t count, FlatBlocks& flat) {
  flat.wide = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t block = first + i;
    const auto in_a = static_cast<size_t>(std::popcount(blocks.lows[block]));
    const auto in_b = static_cast<size_t>(std::popcount(blocks.masks[block])) - in_a;
    const size_t a = blocks.starts[0][block], b = blocks.starts[1][block];
    FlatBlocks::Bytes& to = flat.blocks[i];
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
inline __m128i spread16(uint64_t mask, const int8_t*& from) {
  const auto half = [](const void* lower, const void* upper) {
    const __m128i low = _mm_loadl_epi64(static_cast<const __m128i*>(lower));
    return _mm_castps_si128(_mm_loadh_pi(_mm_castsi128_ps(low), static_cast<const __m64*>(upper)));
  };
  const size_t first = mask & 0xFF, second = mask >> 8 & 0xFF;
  const int8_t* const middle = from + std::popcount(first);
  const __m128i values = half(from, middle);
  from = middle + std::popcount(second);
  return _mm_shuffle_epi8(values,
                          half(kExpansion.lower[first].data(), kExpansion.upper[second].data()));
}

// The values of two blocks, one in each lane: pair of rows i in pairs[i], a byte each.
inline void spread(const uint64_t* masks, const int8_t* left, const int8_t* right, __m256i* pairs) {
  for (size_t source = 0; source < 4; ++source) {
    const __m128i lower = spread16(masks[0] >> (16 * source), left);
    const __m128i upper = spread16(masks[1] >> (16 * source), right);
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(lower), upper, 1);
    for (size_t i = 0; i < 4; ++i) {
      const __m256i taken = _mm256_shuffle_epi8(
          both,
          _mm256_load_si256(reinterpret_cast<const __m256i*>(kShuffles.take[i][source].data())));
      pairs[i] = source == 0 ? taken : _mm256_or_si256(pairs[i], taken);
    }
  }
}

// Coefficients in [-kSmall, kSmall) overflow nowhere, and blocks with nothing below their first row
// are as all others.
constexpr int kSmall = 8192;

struct Steps {
  Pair rows[4];
  bool are_small;  // a byte times one of them is within kSmall
};
inline Steps load_all_steps(const uint16_t* steps) {
  Steps loaded;
  load_steps(steps, loaded.rows);
  const hn::ScalableTag<uint16_t> d;
  auto all = hn::Zero(d);
  for (size_t i = 0; i < 64; i += 16) all = hn::Or(all, hn::LoadU(d, steps + i));
  // The lowest six bits hold them.
  loaded.are_small = _mm256_testz_si256(all.raw, _mm256_set1_epi16(~63)) != 0;
  return loaded;
}

// Two blocks of the flat ones, multiplied by the steps; without DC. False: they are not small.
// A function of its own, so that its second spread() leaves the usual way its registers.
__attribute__((noinline)) bool load_large_pair(const uint64_t* masks, const FlatBlocks::Bytes* flat,
                                               bool is_wide, const Steps& steps, Pair* x) {
  __m256i low[4], high[4];
  spread(masks, flat[0].low.data(), flat[1].low.data(), low);
  if (is_wide) {
    spread(masks, flat[0].high.data(), flat[1].high.data(), high);
  } else {
    for (size_t p = 0; p < 4; ++p) high[p] = _mm256_cmpgt_epi8(_mm256_setzero_si256(), low[p]);
  }
  __m256i beyond = _mm256_setzero_si256();
  const __m256i half = _mm256_set1_epi16(kSmall);
  for (size_t p = 0; p < 4; ++p) {
    x[p].first.raw =
        _mm256_mullo_epi16(_mm256_unpacklo_epi8(low[p], high[p]), steps.rows[p].first.raw);
    x[p].second.raw =
        _mm256_mullo_epi16(_mm256_unpackhi_epi8(low[p], high[p]), steps.rows[p].second.raw);
    beyond = _mm256_or_si256(beyond, _mm256_add_epi16(x[p].first.raw, half));
    beyond = _mm256_or_si256(beyond, _mm256_add_epi16(x[p].second.raw, half));
  }
  return _mm256_testz_si256(beyond, _mm256_set1_epi16(static_cast<int16_t>(-2 * kSmall))) != 0;
}

// The same for values of a byte and small steps.
inline void load_pair(const uint64_t* masks, const FlatBlocks::Bytes* flat, const Steps& steps,
                      Pair* x) {
  __m256i low[4];
  spread(masks, flat[0].low.data(), flat[1].low.data(), low);
  for (size_t p = 0; p < 4; ++p) {  // vpmaddubsw: step * value + 0 * value
    x[p].first.raw =
        _mm256_maddubs_epi16(steps.rows[p].first.raw, _mm256_unpacklo_epi8(low[p], low[p]));
    x[p].second.raw =
        _mm256_maddubs_epi16(steps.rows[p].second.raw, _mm256_unpackhi_epi8(low[p], low[p]));
  }
}

constexpr int32_t kRounding = 1 << 10;  // of the first pass

// What pass 1 adds to the sums of column 0: the rounding, and the DC.
struct Starts {
  alignas(32) std::array<int32_t, 8> first;
  bool are_small;
};
inline Starts load_starts(const int16_t* dc, size_t count, uint16_t step) {
  static_assert(kSegmentPixels / 8 == 8);
  const __m256i coefs =
      _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(dc)));
  const __m256i products = _mm256_mullo_epi32(coefs, _mm256_set1_epi32(step));
  const __m256i used = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                                          _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  const __m256i beyond =
      _mm256_and_si256(used, _mm256_add_epi32(products, _mm256_set1_epi32(kSmall)));
  Starts starts;
  starts.are_small = _mm256_testz_si256(beyond, _mm256_set1_epi32(-2 * kSmall)) != 0;
  _mm256_store_si256(
      reinterpret_cast<__m256i*>(starts.first.data()),
      _mm256_add_epi32(_mm256_slli_epi32(products, 13), _mm256_set1_epi32(kRounding)));
  return starts;
}

// Two blocks, multiplied by the steps but for the DC, which their `starts` have.
inline void transform_pair(const Pair* x, const int32_t* starts, uint8_t* out, size_t stride) {
  const __m256i dcs = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_cvtsi32_si128(starts[0])),
                                              _mm_cvtsi32_si128(starts[1]), 1);
  const Wide rounding = hn::Set(kWide, kRounding);
  Words rows[8];
  idct_pass<11>(x, rows, Wide{_mm256_blend_epi32(rounding.raw, dcs, 0x11)}, rounding);
  finish_idct(rows, out, stride);
}

}  // namespace

void transform_segment(const SegmentBlocks& blocks, size_t first, size_t count,
                       const uint16_t* steps, uint8_t* out, size_t stride) {
  const Steps loaded = load_all_steps(steps);
  const Starts starts = load_starts(&blocks.dc[first], count, steps[0]);
  FlatBlocks flat;
  flatten(blocks, first, count, flat);
  for (size_t i = 0; i < count; i += 2, out += 16) {
    const size_t block = first + i, used = i + 1 < count ? 2 : 1;
    // The block behind the last one of an odd number is not flat: it has no values here.
    const uint64_t masks[2] = {blocks.masks[block], used == 2 ? blocks.masks[block + 1] : 0};
    const FlatBlocks::Bytes* const bytes = &flat.blocks[i];
    const bool is_wide = (flat.wide >> i & 3) != 0;
    Pair x[4];
    bool is_small = starts.are_small;
    if (!is_wide && loaded.are_small) {
      load_pair(masks, bytes, loaded, x);
    } else {
      is_small = is_small && load_large_pair(masks, bytes, is_wide, loaded, x);
    }
    if (is_small) {
      transform_pair(x, &starts.first[i], out, stride);
    } else {
      transform_by_idct(blocks, block, used, steps, out, stride);
    }
  }
}

}  // namespace fastload::FASTLOAD_LEVEL
