#if defined(__x86_64__)

#include "base/vectors.h"
#include "transcode/segment_packer.h"

namespace fastload {
namespace {

struct Avx2Ops {
  static uint64_t extract(uint64_t bits, uint64_t mask) { return _pext_u64(bits, mask); }
  static uint64_t with_bit(const int16_t* values, int bit) {
    const __m128i shift = _mm_cvtsi32_si128(15 - bit);  // to the sign
    return signs([=](int i) { return _mm256_sll_epi16(load(values + 16 * i), shift); });
  }
  static uint64_t at_least(const int16_t* values, int limit) {
    const __m256i below = _mm256_set1_epi16(static_cast<int16_t>(limit - 1));
    return signs([=](int i) { return _mm256_cmpgt_epi16(load(values + 16 * i), below); });
  }
  static void gather(const int16_t* block, uint64_t mask, PackedList& list) {
    gather_by_bits(block, mask, list);
  }

 private:
  static __m256i load(const int16_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
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
                         const SegmentShape& shape, const int16_t* const* blocks, uint8_t* to) {
  return pack_segment_by<Avx2Ops>(coding, classes, shape, blocks, to);
}

}  // namespace fastload

#endif
