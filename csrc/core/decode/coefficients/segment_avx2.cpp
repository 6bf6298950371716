#if defined(__x86_64__)

#include "base/vectors.h"
#include "decode/coefficients/segment_reader.h"
#include "decode/jpeg/idct_v256.h"

namespace fastload {
namespace {

struct Avx2Ops {
  static constexpr bool kBothWide = true;
  static bool fixed_masks(BitPlace& place, const SegmentCoding& coding, const SegmentShape& shape,
                          SegmentBlocks& blocks) {
    return read_fixed_masks(place, coding, shape, blocks);
  }
  static bool list(BitPlace& place, size_t count, int rice, ListBytes& list) {
    return read_list<Avx2Ops>(place, count, rice, list);
  }
  static uint64_t deposit(uint64_t bits, uint64_t mask) { return _pdep_u64(bits, mask); }
  static void add_offsets(uint64_t offsets, int16_t least, int16_t* to) {
    const __m128i sum =
        _mm_add_epi16(_mm_cvtsi64_si128(static_cast<int64_t>(offsets)), _mm_set1_epi16(least));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), sum);
  }
  static void values8(const ValuePlanes& planes, size_t w, int8_t* to) {
    for (int half = 0; half < 2; ++half) {
      __m256i sum = _mm256_set1_epi8(1);
      add_planes(planes, w, [&sum, half](uint64_t plane, int shift) {
        const __m256i weight = _mm256_set1_epi8(static_cast<char>(1 << shift));
        sum = _mm256_add_epi8(sum, _mm256_and_si256(byte_mask(plane >> (32 * half)), weight));
      });
      const __m256i sign = byte_mask(planes.sign[w] >> (32 * half));
      store(to + 32 * half, _mm256_sub_epi8(_mm256_xor_si256(sum, sign), sign));
    }
  }
  static void values16(const ValuePlanes& planes, size_t w, int8_t* low, int8_t* high) {
    for (int half = 0; half < 2; ++half) {
      const __m256i first = words(planes, w, 2 * half), second = words(planes, w, 2 * half + 1);
      const __m256i byte = _mm256_set1_epi16(0xFF);
      const __m256i lows =
          _mm256_packus_epi16(_mm256_and_si256(first, byte), _mm256_and_si256(second, byte));
      const __m256i highs =
          _mm256_packs_epi16(_mm256_srai_epi16(first, 8), _mm256_srai_epi16(second, 8));
      store(low + 32 * half, _mm256_permute4x64_epi64(lows, 0xD8));
      store(high + 32 * half, _mm256_permute4x64_epi64(highs, 0xD8));
    }
  }
  static void extend(const int8_t* low, int8_t* high) {
    for (int half = 0; half < 2; ++half) {
      const __m256i values = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(low + 32 * half));
      store(high + 32 * half, _mm256_cmpgt_epi8(_mm256_setzero_si256(), values));
    }
  }
  static void copy(const uint8_t* data, size_t at, size_t words, uint64_t* plane) {
    for (size_t w = 0; w < words; ++w) plane[w] = whole_word_at(data, at + 64 * w);
  }

 private:
  // Sixteen values of a word.
  static __m256i words(const ValuePlanes& planes, size_t w, int part) {
    __m256i sum = _mm256_set1_epi16(1);
    add_planes(planes, w, [&sum, part](uint64_t plane, int shift) {
      const __m256i weight = _mm256_set1_epi16(static_cast<int16_t>(1 << shift));
      sum = _mm256_add_epi16(sum, _mm256_and_si256(word_mask(plane >> (16 * part)), weight));
    });
    const __m256i sign = word_mask(planes.sign[w] >> (16 * part));
    return _mm256_sub_epi16(_mm256_xor_si256(sum, sign), sign);
  }
  static void store(void* to, __m256i values) {
    _mm256_storeu_si256(static_cast<__m256i*>(to), values);
  }
  // All ones for each of the lowest 32 bits that is one.
  static __m256i byte_mask(uint64_t bits) {
    const __m256i all = _mm256_set1_epi32(static_cast<int32_t>(bits));
    const __m256i spread = _mm256_shuffle_epi8(
        all, _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
    const __m256i one = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
    return _mm256_cmpeq_epi8(_mm256_and_si256(spread, one), one);
  }
  // The same for 16 bits and words.
  static __m256i word_mask(uint64_t bits) {
    const __m256i one = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096,
                                          8192, 16384, static_cast<int16_t>(0x8000));
    const __m256i all = _mm256_set1_epi16(static_cast<int16_t>(bits));
    return _mm256_cmpeq_epi16(_mm256_and_si256(all, one), one);
  }
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

// From zig-zag to natural order: output i (two rows) takes bytes of source j by shuffle [i][j];
// 0x80 takes none.
struct Shuffles {
  alignas(16) std::array<std::array<std::array<uint8_t, 16>, 4>, 4> take;
  std::array<std::array<bool, 4>, 4> any{};
};
constexpr std::array<uint8_t, 64> kOrder{
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};
constexpr Shuffles kShuffles = [] {
  Shuffles shuffles{};
  for (auto& output : shuffles.take) {
    for (auto& source : output) source.fill(0x80);
  }
  for (size_t k = 0; k < 64; ++k) {
    const size_t to = kOrder[k];
    shuffles.take[to / 16][k / 16][to % 16] = static_cast<uint8_t>(k % 16);
    shuffles.any[to / 16][k / 16] = true;
  }
  return shuffles;
}();

template <size_t kOutput, size_t kSource>
__m128i take(__m128i sum, const __m128i* zigzag) {
  if constexpr (kShuffles.any[kOutput][kSource]) {
    const __m128i shuffle =
        _mm_load_si128(reinterpret_cast<const __m128i*>(kShuffles.take[kOutput][kSource].data()));
    return _mm_or_si128(sum, _mm_shuffle_epi8(zigzag[kSource], shuffle));
  }
  return sum;
}

template <size_t kOutput>
__m128i rows_of(const __m128i* zigzag) {
  __m128i sum = _mm_setzero_si128();
  sum = take<kOutput, 0>(sum, zigzag);
  sum = take<kOutput, 1>(sum, zigzag);
  sum = take<kOutput, 2>(sum, zigzag);
  return take<kOutput, 3>(sum, zigzag);
}

// Eight ones become eight bytes of ones.
inline uint64_t bytes_of(uint64_t mask) { return _pdep_u64(mask, 0x0101010101010101u) * 0xFF; }

inline uint64_t load64(const int8_t* from) {
  uint64_t word;
  std::memcpy(&word, from, 8);
  return word;
}

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
inline void copy64(const int8_t* from, int8_t* to) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), load32(from));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32), load32(from + 32));
}

// Bit i: the high byte i is not what the low byte's sign says.
inline uint64_t large_values(const FlatBlocks::Bytes& bytes) {
  uint64_t same[2];
  for (size_t i = 0; i < 2; ++i) {
    const __m256i sign = _mm256_cmpgt_epi8(_mm256_setzero_si256(), load32(&bytes.low[32 * i]));
    const __m256i is_same = _mm256_cmpeq_epi8(sign, load32(&bytes.high[32 * i]));
    same[i] = static_cast<uint32_t>(_mm256_movemask_epi8(is_same));
  }
  return ~(same[0] | same[1] << 32);
}

void flatten(const SegmentBlocks& blocks, size_t first, size_t count, FlatBlocks& flat) {
  flat.wide = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t block = first + i, a = blocks.starts[0][block], b = blocks.starts[1][block];
    const auto in_a = static_cast<size_t>(std::popcount(blocks.lows[block]));
    FlatBlocks::Bytes& to = flat.blocks[i];
    copy64(&blocks.bytes[0][a], to.low.data());
    copy64(&blocks.bytes[1][b], &to.low[in_a]);
    if (!blocks.is_wide) continue;
    copy64(&blocks.highs[0][a], to.high.data());
    copy64(&blocks.highs[1][b], &to.high[in_a]);
    const auto all = static_cast<unsigned>(std::popcount(blocks.masks[block]));
    flat.wide |= uint32_t{_bzhi_u64(large_values(to), all) != 0} << i;
  }
}

// The values of a block in natural order, a byte each: rows 2i and 2i + 1 in rows[i].
void spread(uint64_t mask, const std::array<int8_t, 128>& values, __m128i* rows) {
  const int8_t* from = values.data();
  __m128i zigzag[4];
  for (__m128i& half : zigzag) {
    uint64_t words[2];
    for (uint64_t& word : words) {
      word = _pdep_u64(load64(from), bytes_of(mask & 0xFF));
      from += std::popcount(mask & 0xFF);
      mask >>= 8;
    }
    half = _mm_set_epi64x(static_cast<int64_t>(words[1]), static_cast<int64_t>(words[0]));
  }
  rows[0] = rows_of<0>(zigzag);
  rows[1] = rows_of<1>(zigzag);
  rows[2] = rows_of<2>(zigzag);
  rows[3] = rows_of<3>(zigzag);
}

// Two blocks, from number `i` of the flat ones on.
void load_group(const uint64_t* masks, const FlatBlocks& flat, size_t i, __m256i* x) {
  __m128i left[4], right[4];
  spread(masks[0], flat.blocks[i].low, left);
  spread(masks[1], flat.blocks[i + 1].low, right);
  if ((flat.wide >> i & 3) == 0) {
    for (size_t row = 0; row < 4; ++row) {
      x[2 * row] = _mm256_cvtepi8_epi16(_mm_unpacklo_epi64(left[row], right[row]));
      x[2 * row + 1] = _mm256_cvtepi8_epi16(_mm_unpackhi_epi64(left[row], right[row]));
    }
    return;
  }
  __m128i left_high[4], right_high[4];
  spread(masks[0], flat.blocks[i].high, left_high);
  spread(masks[1], flat.blocks[i + 1].high, right_high);
  for (size_t row = 0; row < 4; ++row) {
    x[2 * row] = _mm256_setr_m128i(_mm_unpacklo_epi8(left[row], left_high[row]),
                                   _mm_unpacklo_epi8(right[row], right_high[row]));
    x[2 * row + 1] = _mm256_setr_m128i(_mm_unpackhi_epi8(left[row], left_high[row]),
                                       _mm_unpackhi_epi8(right[row], right_high[row]));
  }
}

}  // namespace

bool unpack_segments_avx2(const SegmentCoding& coding, const SegmentSource* sources, size_t count,
                          SegmentBlocks* blocks) {
  return unpack_segments<Avx2Ops>(coding, sources, count, blocks);
}

void transform_segment_avx2(const SegmentBlocks& blocks, size_t first, size_t count,
                            const uint16_t* steps, uint8_t* out, size_t stride) {
  __m256i step_rows[8];
  for (int row = 0; row < 8; ++row) step_rows[row] = V256::repeat_lane(steps + row * 8);
  FlatBlocks flat;
  flatten(blocks, first, count, flat);
  for (size_t i = 0; i < count; i += 2, out += 16) {
    const size_t block = first + i;
    // The block behind the last one of an odd number is not flat: it has no values here.
    const uint64_t masks[2] = {blocks.masks[block], i + 1 < count ? blocks.masks[block + 1] : 0};
    __m256i x[8];
    load_group(masks, flat, i, x);
    const __m256i dcs = _mm256_setr_epi64x(static_cast<uint16_t>(blocks.dc[block]), 0,
                                           static_cast<uint16_t>(blocks.dc[block + 1]), 0);
    x[0] = _mm256_or_si256(x[0], dcs);
    transform_rows<V256>(x, step_rows, out, stride);
  }
}

}  // namespace fastload

#endif
