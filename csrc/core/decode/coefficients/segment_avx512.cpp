#if defined(__x86_64__)

#include "base/vectors.h"
#include "decode/coefficients/segment_reader.h"
#include "decode/jpeg/idct_v512.h"

namespace fastload {
namespace {

struct Avx512Ops {
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
  static void values16(const ValuePlanes& planes, size_t w, int16_t* to) {
    for (int half = 0; half < 2; ++half) {
      __m512i sum = _mm512_set1_epi16(1);
      const auto add = [&sum, half](uint64_t plane, int shift) {
        sum = _mm512_mask_add_epi16(sum, static_cast<__mmask32>(plane >> (32 * half)), sum,
                                    _mm512_set1_epi16(static_cast<int16_t>(1 << shift)));
      };
      add_planes(planes, w, add);
      const auto sign = static_cast<__mmask32>(planes.sign[w] >> (32 * half));
      _mm512_storeu_si512(to + 32 * half,
                          _mm512_mask_sub_epi16(sum, sign, _mm512_setzero_si512(), sum));
    }
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
struct NaturalOrder {
  alignas(64) std::array<uint8_t, 64> bytes{};
  alignas(64) std::array<uint16_t, 64> words{};
};
const NaturalOrder kNatural = [] {
  NaturalOrder order;
  for (size_t k = 0; k < 64; ++k) {
    order.bytes[kZigzag[k]] = static_cast<uint8_t>(k);
    order.words[kZigzag[k]] = static_cast<uint16_t>(k);
  }
  return order;
}();

// The AC coefficients of a block in natural order, a byte each.
__m512i spread_bytes(const SegmentBlocks& blocks, size_t block, __m512i order) {
  const uint64_t lows = blocks.lows[block], highs = blocks.masks[block] & ~lows;
  const __m512i a = _mm512_loadu_si512(blocks.bytes[0].data() + blocks.starts[0][block]);
  const __m512i b = _mm512_loadu_si512(blocks.bytes[1].data() + blocks.starts[1][block]);
  const __m512i zigzag = _mm512_mask_expand_epi8(_mm512_maskz_expand_epi8(lows, a), highs, b);
  return _mm512_permutexvar_epi8(order, zigzag);
}

// Of rows with the four blocks' bytes, `pair` has one in each half.
void widen_rows(__m512i pair, __m512i& first, __m512i& second) {
  first = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(pair));
  second = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(pair, 1));
}

void load_bytes(const SegmentBlocks& blocks, size_t first, __m512i* x) {
  const __m512i order = _mm512_load_si512(kNatural.bytes.data());
  const __m512i b0 = spread_bytes(blocks, first, order);
  const __m512i b1 = spread_bytes(blocks, first + 1, order);
  const __m512i b2 = spread_bytes(blocks, first + 2, order);
  const __m512i b3 = spread_bytes(blocks, first + 3, order);
  // Rows of blocks side by side: 8 bytes are a row.
  const __m512i even01 = _mm512_unpacklo_epi64(b0, b1), odd01 = _mm512_unpackhi_epi64(b0, b1);
  const __m512i even23 = _mm512_unpacklo_epi64(b2, b3), odd23 = _mm512_unpackhi_epi64(b2, b3);
  const __m512i upper = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i lower = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  widen_rows(_mm512_permutex2var_epi64(even01, upper, even23), x[0], x[2]);
  widen_rows(_mm512_permutex2var_epi64(odd01, upper, odd23), x[1], x[3]);
  widen_rows(_mm512_permutex2var_epi64(even01, lower, even23), x[4], x[6]);
  widen_rows(_mm512_permutex2var_epi64(odd01, lower, odd23), x[5], x[7]);
}

// 32 values of a list, as words, at the ones of `mask`.
__m512i spread_words(const SegmentBlocks& blocks, size_t list, size_t at, uint32_t mask) {
  const __m512i values =
      blocks.is_wide[list] ? _mm512_loadu_si512(blocks.words[list].data() + at)
                           : _mm512_cvtepi8_epi16(_mm256_loadu_si256(
                                 reinterpret_cast<const __m256i*>(blocks.bytes[list].data() + at)));
  return _mm512_maskz_expand_epi16(mask, values);
}

// The same as load_bytes() where a list has words.
void load_words(const SegmentBlocks& blocks, size_t first, __m512i* x) {
  alignas(64) std::array<int16_t, 8 * 32> rows;
  const __m512i upper = _mm512_load_si512(kNatural.words.data());
  const __m512i lower = _mm512_load_si512(kNatural.words.data() + 32);
  for (size_t i = 0; i < 4; ++i) {
    const uint64_t lists[2] = {blocks.lows[first + i],
                               blocks.masks[first + i] & ~blocks.lows[first + i]};
    __m512i halves[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    for (size_t list = 0; list < 2; ++list) {
      const size_t at = blocks.starts[list][first + i];
      const auto low = static_cast<uint32_t>(lists[list]);
      const auto high = static_cast<uint32_t>(lists[list] >> 32);
      const size_t next = at + static_cast<size_t>(std::popcount(low));
      halves[0] = _mm512_or_si512(halves[0], spread_words(blocks, list, at, low));
      halves[1] = _mm512_or_si512(halves[1], spread_words(blocks, list, next, high));
    }
    const __m512i natural[2] = {_mm512_permutex2var_epi16(halves[0], upper, halves[1]),
                                _mm512_permutex2var_epi16(halves[0], lower, halves[1])};
    alignas(64) std::array<int16_t, 64> block;
    _mm512_store_si512(block.data(), natural[0]);
    _mm512_store_si512(block.data() + 32, natural[1]);
    for (size_t row = 0; row < 8; ++row) {
      std::memcpy(&rows[row * 32 + i * 8], &block[row * 8], 16);
    }
  }
  for (size_t row = 0; row < 8; ++row) x[row] = _mm512_load_si512(&rows[row * 32]);
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
  const bool has_words = blocks.is_wide[0] || blocks.is_wide[1];
  for (size_t block = first; block < first + count; block += 4, out += 32) {
    __m512i x[8];
    if (has_words) {
      load_words(blocks, block, x);
    } else {
      load_bytes(blocks, block, x);
    }
    const __m128i dc = _mm_loadu_si128(reinterpret_cast<const __m128i*>(&blocks.dc[block]));
    const __m512i dcs = _mm512_maskz_expand_epi16(0x01010101, _mm512_castsi128_si512(dc));
    x[0] = _mm512_or_si512(x[0], dcs);
    transform_rows<V512>(x, step_rows, out, stride);
  }
}

}  // namespace fastload

#endif
