#if defined(__x86_64__)

#include "base/vectors.h"
#include "decode/coefficients/segment_reader.h"

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

}  // namespace

bool unpack_segments_avx2(const SegmentCoding& coding, const SegmentSource* sources, size_t count,
                          SegmentBlocks* blocks) {
  return unpack_segments<Avx2Ops>(coding, sources, count, blocks);
}

}  // namespace fastload

#endif
