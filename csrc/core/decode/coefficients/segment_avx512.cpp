#if defined(__x86_64__)

#include "base/vectors.h"
#include "decode/coefficients/fixed_masks_avx512.h"
#include "decode/coefficients/list_levels_avx512.h"
#include "decode/coefficients/segment_reader.h"
#include "decode/jpeg/idct_v512.h"

namespace fastload {
namespace {

struct Avx512Ops : Avx512Words {
  static bool fixed_masks(BitPlace& place, const SegmentCoding& coding, const SegmentShape& shape,
                          SegmentBlocks& blocks) {
    return FixedMasks(coding, blocks).read(place, shape);
  }
  static bool list(BitPlace& place, size_t count, int rice, ListBytes& list) {
    const LevelsRead found = ListLevels::read(place, count, rice, list);
    if (found != LevelsRead::kTooMany) return found == LevelsRead::kDone;
    return read_list<Avx512Ops>(place, count, rice, list);
  }
  static uint64_t deposit(uint64_t bits, uint64_t mask) { return _pdep_u64(bits, mask); }
  static void add_offsets(uint64_t offsets, int16_t least, int16_t* to) {
    const __m128i sum =
        _mm_add_epi16(_mm_cvtsi64_si128(static_cast<int64_t>(offsets)), _mm_set1_epi16(least));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), sum);
  }
  static void values8(const ValuePlanes& planes, size_t w, int8_t* to) {
    __m512i sum = _mm512_set1_epi8(1);
    const auto add = [&sum](uint64_t plane, int shift) {
      sum = _mm512_mask_add_epi8(sum, plane, sum, _mm512_set1_epi8(static_cast<char>(1 << shift)));
    };
    add_planes(planes, w, add);
    const __m512i zero = _mm512_setzero_si512();
    _mm512_storeu_si512(to, _mm512_mask_sub_epi8(sum, planes.sign[w], zero, sum));
  }
  static void values16(const ValuePlanes& planes, size_t w, int8_t* low, int8_t* high) {
    __m512i halves[2];
    for (int half = 0; half < 2; ++half) {
      __m512i sum = _mm512_set1_epi16(1);
      const auto add = [&sum, half](uint64_t plane, int shift) {
        sum = _mm512_mask_add_epi16(sum, static_cast<__mmask32>(plane >> (32 * half)), sum,
                                    _mm512_set1_epi16(static_cast<int16_t>(1 << shift)));
      };
      add_planes(planes, w, add);
      const auto sign = static_cast<__mmask32>(planes.sign[w] >> (32 * half));
      halves[half] = _mm512_mask_sub_epi16(sum, sign, _mm512_setzero_si512(), sum);
    }
    // The even bytes of both halves, and the odd ones.
    alignas(64) static constexpr std::array<uint8_t, 64> kEven = [] {
      std::array<uint8_t, 64> places{};
      for (size_t i = 0; i < 64; ++i) places[i] = static_cast<uint8_t>(2 * i);
      return places;
    }();
    const __m512i even = _mm512_load_si512(kEven.data());
    const __m512i odd = _mm512_add_epi8(even, _mm512_set1_epi8(1));
    _mm512_storeu_si512(low, _mm512_permutex2var_epi8(halves[0], even, halves[1]));
    _mm512_storeu_si512(high, _mm512_permutex2var_epi8(halves[0], odd, halves[1]));
  }
  static void extend(const int8_t* low, int8_t* high) {
    _mm512_storeu_si512(high, _mm512_movm_epi8(_mm512_movepi8_mask(_mm512_loadu_si512(low))));
  }

 private:
  template <class Add>
  static void add_planes(const ValuePlanes& planes, size_t w, Add add) {
    for (int bit = 0; bit < planes.rice; ++bit) add(planes.raw[static_cast<size_t>(bit)][w], bit);
    for (int bit = 0; bit < planes.deepest; ++bit) {
      const auto index = static_cast<size_t>(bit);
      add(planes.deep[index + 1][w], planes.rice + bit);
      add(planes.low[index][w], planes.rice + bit);
    }
  }
};

// For each place in natural order its zig-zag position.
alignas(64) const std::array<uint8_t, 64> kNatural = [] {
  std::array<uint8_t, 64> order{};
  for (size_t k = 0; k < 64; ++k) order[kZigzag[k]] = static_cast<uint8_t>(k);
  return order;
}();

// The values of a block's AC coefficients in natural order, a byte each; `values` are the lists'.
__m512i spread(const SegmentBlocks& blocks,
               const std::array<std::array<int8_t, SegmentBlocks::kValues>, 2>& values,
               size_t block, __m512i order) {
  const uint64_t lows = blocks.lows[block], highs = blocks.masks[block] & ~lows;
  const __m512i a = _mm512_loadu_si512(values[0].data() + blocks.starts[0][block]);
  const __m512i b = _mm512_loadu_si512(values[1].data() + blocks.starts[1][block]);
  const __m512i zigzag = _mm512_mask_expand_epi8(_mm512_maskz_expand_epi8(lows, a), highs, b);
  return _mm512_permutexvar_epi8(order, zigzag);
}

// Rows of bytes of four blocks side by side: rows[i] has the rows kFirst[i] and kFirst[i] + 2.
constexpr std::array<size_t, 4> kFirst{0, 1, 4, 5};

void load_rows(const SegmentBlocks& blocks,
               const std::array<std::array<int8_t, SegmentBlocks::kValues>, 2>& values,
               size_t first, __m512i* rows) {
  const __m512i order = _mm512_load_si512(kNatural.data());
  const __m512i b0 = spread(blocks, values, first, order);
  const __m512i b1 = spread(blocks, values, first + 1, order);
  const __m512i b2 = spread(blocks, values, first + 2, order);
  const __m512i b3 = spread(blocks, values, first + 3, order);
  const __m512i even01 = _mm512_unpacklo_epi64(b0, b1), odd01 = _mm512_unpackhi_epi64(b0, b1);
  const __m512i even23 = _mm512_unpacklo_epi64(b2, b3), odd23 = _mm512_unpackhi_epi64(b2, b3);
  const __m512i upper = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i lower = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  rows[0] = _mm512_permutex2var_epi64(even01, upper, even23);
  rows[1] = _mm512_permutex2var_epi64(odd01, upper, odd23);
  rows[2] = _mm512_permutex2var_epi64(even01, lower, even23);
  rows[3] = _mm512_permutex2var_epi64(odd01, lower, odd23);
}

void load_group(const SegmentBlocks& blocks, size_t first, __m512i* x) {
  __m512i low[4];
  load_rows(blocks, blocks.bytes, first, low);
  if (!blocks.is_wide) {
    for (size_t i = 0; i < 4; ++i) {
      x[kFirst[i]] = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(low[i]));
      x[kFirst[i] + 2] = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(low[i], 1));
    }
    return;
  }
  __m512i high[4];
  load_rows(blocks, blocks.highs, first, high);
  // Bytes side by side, eight of each in a lane: a row of a block.
  const __m512i pairs_low = _mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3);
  const __m512i pairs_high = _mm512_setr_epi64(4, 4, 5, 5, 6, 6, 7, 7);
  for (size_t i = 0; i < 4; ++i) {
    x[kFirst[i]] = _mm512_unpacklo_epi8(_mm512_permutexvar_epi64(pairs_low, low[i]),
                                        _mm512_permutexvar_epi64(pairs_low, high[i]));
    x[kFirst[i] + 2] = _mm512_unpacklo_epi8(_mm512_permutexvar_epi64(pairs_high, low[i]),
                                            _mm512_permutexvar_epi64(pairs_high, high[i]));
  }
}

}  // namespace

bool unpack_segments_avx512(const SegmentCoding& coding, const SegmentSource* sources, size_t count,
                            SegmentBlocks* blocks) {
  return unpack_segments<Avx512Ops>(coding, sources, count, blocks);
}

void transform_segment_avx512(const SegmentBlocks& blocks, size_t first, size_t count,
                              const uint16_t* steps, uint8_t* out, size_t stride) {
  __m512i step_rows[8];
  for (int row = 0; row < 8; ++row) step_rows[row] = V512::repeat_lane(steps + row * 8);
  for (size_t block = first; block < first + count; block += 4, out += 32) {
    __m512i x[8];
    load_group(blocks, block, x);
    const __m128i dc = _mm_loadu_si128(reinterpret_cast<const __m128i*>(&blocks.dc[block]));
    const __m512i dcs = _mm512_maskz_expand_epi16(0x01010101, _mm512_castsi128_si512(dc));
    x[0] = _mm512_or_si512(x[0], dcs);
    transform_rows<V512>(x, step_rows, out, stride);
  }
}

}  // namespace fastload

#endif
