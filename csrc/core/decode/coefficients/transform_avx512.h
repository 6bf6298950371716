// Four blocks of a segment at a time: values to their places, dequantisation and the inverse DCT.
// Part of transform_vector.cpp, for AVX-512.
#pragma once

#include <algorithm>
#include <array>
#include <bit>

#include "decode/coefficients/segment.h"
#include "decode/jpeg/idct_passes.h"
#include "decode/jpeg/parser.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

// The coefficients of a block's first row.
constexpr uint64_t kFirstRow = [] {
  uint64_t mask = 0;
  for (size_t k = 0; k < 64; ++k) mask |= uint64_t{kZigzag[k] < 8} << k;
  return mask;
}();

// From the zig-zag bytes of two blocks, one behind the other: a pair of rows of the first block, of
// the second, then the next pair of both.
template <size_t kPair>
constexpr std::array<uint8_t, 64> row_pairs() {
  std::array<uint8_t, 64> zigzag_of{}, order{};
  for (size_t k = 0; k < 64; ++k) zigzag_of[kZigzag[k]] = static_cast<uint8_t>(k);
  for (size_t i = 0; i < 64; ++i) {
    const size_t row = kIdctPairs[kPair + i / 32][i % 2], block = i / 16 % 2;
    order[i] = static_cast<uint8_t>(64 * block + zigzag_of[row * 8 + kIdctOrder[i % 16 / 2]]);
  }
  return order;
}

using Lists = std::array<std::array<int8_t, SegmentBlocks::kValues>, 2>;

// Where a block's values lie. List A has the first of them, so all lie side by side once those of
// list B are read from so many bytes before.
struct Values {
  const int8_t *a, *b;
  uint64_t mask;
  __mmask64 of_b;  // of the values
};
inline Values values_of(const SegmentBlocks& blocks, const Lists& lists, size_t block) {
  const auto of_a = static_cast<size_t>(std::popcount(blocks.lows[block]));
  return {lists[0].data() + blocks.starts[0][block],
          lists[1].data() + blocks.starts[1][block] - of_a, blocks.masks[block],
          ~uint64_t{0} << of_a};
}
// The bytes of a block's AC coefficients in zig-zag order.
struct LowBytes {
  static __m512i of(const SegmentBlocks& blocks, size_t block) {
    const Values v = values_of(blocks, blocks.bytes, block);
    const __m512i bytes = _mm512_mask_loadu_epi8(_mm512_loadu_si512(v.a), v.of_b, v.b);
    return _mm512_maskz_expand_epi8(v.mask, bytes);
  }
};
// Of a list that is not wide there are none: its values' signs.
struct HighBytes {
  static __m512i of(const SegmentBlocks& blocks, size_t block) {
    const Values low = values_of(blocks, blocks.bytes, block);
    const __m512i bytes = _mm512_mask_loadu_epi8(_mm512_loadu_si512(low.a), low.of_b, low.b);
    __m512i high = _mm512_movm_epi8(_mm512_movepi8_mask(bytes));
    const Values v = values_of(blocks, blocks.highs, block);
    if (blocks.wide[0]) high = _mm512_mask_loadu_epi8(high, ~v.of_b, v.a);
    if (blocks.wide[1]) high = _mm512_mask_loadu_epi8(high, v.of_b, v.b);
    return _mm512_maskz_expand_epi8(v.mask, high);
  }
};

// Bytes of four blocks: lane b of pairs[i] has pair i of the rows of block b.
template <class Which>
[[gnu::always_inline]] inline void load_pairs(const SegmentBlocks& blocks, size_t first,
                                              __m512i* pairs) {
  alignas(64) static constexpr std::array<uint8_t, 64> kUpper = row_pairs<0>(),
                                                       kLower = row_pairs<2>();
  const __m512i upper = _mm512_load_si512(kUpper.data()), lower = _mm512_load_si512(kLower.data());
  const __m512i b0 = Which::of(blocks, first), b1 = Which::of(blocks, first + 1);
  const __m512i b2 = Which::of(blocks, first + 2), b3 = Which::of(blocks, first + 3);
  const __m512i upper01 = _mm512_permutex2var_epi8(b0, upper, b1);
  const __m512i upper23 = _mm512_permutex2var_epi8(b2, upper, b3);
  const __m512i lower01 = _mm512_permutex2var_epi8(b0, lower, b1);
  const __m512i lower23 = _mm512_permutex2var_epi8(b2, lower, b3);
  pairs[0] = _mm512_inserti64x4(upper01, _mm512_castsi512_si256(upper23), 1);
  pairs[1] = _mm512_shuffle_i64x2(upper01, upper23, 0xEE);
  pairs[2] = _mm512_inserti64x4(lower01, _mm512_castsi512_si256(lower23), 1);
  pairs[3] = _mm512_shuffle_i64x2(lower01, lower23, 0xEE);
}

class RowTransform {
 public:
  RowTransform(const SegmentBlocks& blocks, const uint16_t* steps) : blocks_(blocks) {
    load_steps(steps, steps_);
    const __m512i all = _mm512_or_si512(_mm512_loadu_si512(steps), _mm512_loadu_si512(steps + 32));
    // Then a product with a byte is below 2^14, and fits once both factors are shifted by 8.
    is_small_ = _mm512_test_epi16_mask(all, _mm512_set1_epi16(static_cast<int16_t>(0xFF80))) == 0;
    if (is_small_) {
      for (Pair& step : steps_) {
        step = {hn::ShiftLeft<8>(step.first), hn::ShiftLeft<8>(step.second)};
      }
    }
    dc_step_ = _mm512_set1_epi16(static_cast<int16_t>(steps[0]));
  }

  // The blocks [first, first + count) to 8 rows of samples.
  void run(size_t first, size_t count, uint8_t* out, size_t stride) const {
    const size_t end = first + count;
    Pair x[4];
    load(first, std::min(first + 4, end), x);
    for (; first < end; first += 4, out += 32) {
      Words rows[8];
      idct_pass<11>(x, rows);
      if (may_overflow(x[0])) [[unlikely]] put_flat_rows(flat_blocks(first), x[0], rows);
      // The next blocks' values are on their way while these are worked on.
      if (first + 4 < end) load(first + 4, std::min(first + 8, end), x);
      finish_idct(rows, out, stride);
    }
  }

 private:
  // Dequantised pairs.
  [[gnu::always_inline]] void load(size_t first, size_t end, Pair* x) const {
    if (is_small_ && are_bytes(first, end)) [[likely]] {
      load_small(first, x);
    } else {
      load_any(first, x);
    }
  }
  // Whether the values of all these blocks fit into a byte.
  [[gnu::always_inline]] bool are_bytes(size_t first, size_t end) const {
    if (!blocks_.is_wide) return true;
    for (size_t list = 0; list < 2; ++list) {
      if (!blocks_.wide[list]) continue;
      const size_t last = blocks_.starts[list][end];
      for (size_t at = blocks_.starts[list][first]; at < last; at += 64) {
        const __m512i low = _mm512_loadu_si512(&blocks_.bytes[list][at]);
        const __m512i high = _mm512_loadu_si512(&blocks_.highs[list][at]);
        const __m512i signs = _mm512_movm_epi8(_mm512_movepi8_mask(low));
        const auto used = _cvtu64_mask64(_bzhi_u64(~uint64_t{0}, static_cast<unsigned>(last - at)));
        if (_mm512_mask_cmpneq_epi8_mask(used, high, signs) != 0) return false;
      }
    }
    return true;
  }
  [[gnu::always_inline]] void load_small(size_t first, Pair* x) const {
    __m512i bytes[4];
    load_pairs<LowBytes>(blocks_, first, bytes);
    const __m512i zero = _mm512_setzero_si512();
    for (size_t i = 0; i < 4; ++i) {
      x[i].first.raw =
          _mm512_mulhi_epi16(_mm512_unpacklo_epi8(zero, bytes[i]), steps_[i].first.raw);
      x[i].second.raw =
          _mm512_mulhi_epi16(_mm512_unpackhi_epi8(zero, bytes[i]), steps_[i].second.raw);
    }
    add_dc(first, x);
  }
  [[gnu::noinline]] void load_any(size_t first, Pair* x) const {
    __m512i low[4], high[4];
    load_pairs<LowBytes>(blocks_, first, low);
    load_pairs<HighBytes>(blocks_, first, high);
    const auto times = [this](__m512i values, Words step) {
      return Words{_mm512_mullo_epi16(
          values, is_small_ ? _mm512_srli_epi16(step.raw, 8) : step.raw)};
    };
    for (size_t i = 0; i < 4; ++i) {
      x[i] = {times(_mm512_unpacklo_epi8(low[i], high[i]), steps_[i].first),
              times(_mm512_unpackhi_epi8(low[i], high[i]), steps_[i].second)};
    }
    add_dc(first, x);
  }

  // DC is the first word of the first pair.
  [[gnu::always_inline]] void add_dc(size_t first, Pair* x) const {
    const __m128i dc = _mm_loadu_si128(reinterpret_cast<const __m128i*>(&blocks_.dc[first]));
    const __m512i dcs = _mm512_maskz_expand_epi16(0x01010101, _mm512_castsi128_si512(dc));
    x[0].first.raw = _mm512_add_epi16(x[0].first.raw, _mm512_mullo_epi16(dcs, dc_step_));
  }

  // Of the next four.
  [[nodiscard]] Blocks flat_blocks(size_t first) const {
    const __m256i masks =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&blocks_.masks[first]));
    const unsigned flat =
        _mm256_testn_epi64_mask(masks, _mm256_set1_epi64x(static_cast<int64_t>(~kFirstRow)));
    return Blocks{static_cast<__mmask8>(_pdep_u32(flat, 0x55) * 3)};
  }

  const SegmentBlocks& blocks_;
  Pair steps_[4];  // where is_small_ shifted by 8
  __m512i dc_step_;
  bool is_small_;
};

}  // namespace

void transform_segment(const SegmentBlocks& blocks, size_t first, size_t count,
                       const uint16_t* steps, uint8_t* out, size_t stride) {
  RowTransform(blocks, steps).run(first, count, out, stride);
}

}  // namespace fastload::FASTLOAD_LEVEL
