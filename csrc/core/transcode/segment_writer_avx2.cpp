#if defined(__x86_64__)

#include "base/vectors.h"
#include "transcode/segment_packer.h"

namespace fastload {
namespace {

struct Avx2Ops {
  static constexpr bool kCompresses = false;
  static uint64_t extract(uint64_t bits, uint64_t mask) { return _pext_u64(bits, mask); }
  static uint64_t with_bit(const uint8_t* values, int bit) {
    const __m128i shift = _mm_cvtsi32_si128(7 - bit);  // to the sign, whatever comes from below
    return joined(_mm256_sll_epi16(load(values), shift),
                  _mm256_sll_epi16(load(values + 32), shift));
  }
  static uint64_t at_least(const uint8_t* values, int limit) {
    const __m256i least = _mm256_set1_epi8(static_cast<char>(limit));
    const auto reaches = [least](__m256i all) {
      return _mm256_cmpeq_epi8(_mm256_max_epu8(all, least), all);
    };
    return joined(reaches(load(values)), reaches(load(values + 32)));
  }
  static uint64_t with_bit(const uint16_t* values, int bit) {
    const __m128i shift = _mm_cvtsi32_si128(15 - bit);
    return signs([=](int i) { return _mm256_sll_epi16(load(values + 16 * i), shift); });
  }
  static uint64_t at_least(const uint16_t* values, int limit) {
    const __m256i least = _mm256_set1_epi16(static_cast<int16_t>(limit));
    return signs([=](int i) {
      const __m256i all = load(values + 16 * i);
      return _mm256_cmpeq_epi16(_mm256_max_epu16(all, least), all);
    });
  }

 private:
  static __m256i load(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  }
  static uint64_t joined(__m256i a, __m256i b) {
    return static_cast<uint32_t>(_mm256_movemask_epi8(a)) |
           uint64_t{static_cast<uint32_t>(_mm256_movemask_epi8(b))} << 32;
  }
  // The signs of four vectors of 16.
  template <class Vector>
  static uint64_t signs(Vector vector) {
    return both(vector(0), vector(1)) | both(vector(2), vector(3)) << 32;
  }
  static uint64_t both(__m256i a, __m256i b) {
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0xD8);
    return static_cast<uint32_t>(_mm256_movemask_epi8(bytes));
  }
};

}  // namespace

size_t pack_segment_avx2(const SegmentCoding& coding, const MaskClasses& classes,
                         const SegmentShape& shape, const ListedSegment& segment, uint8_t* to) {
  return pack_segment_by<Avx2Ops>(coding, classes, shape, segment, to);
}

}  // namespace fastload

#endif
