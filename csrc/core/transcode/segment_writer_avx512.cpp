#if defined(__x86_64__)

#include "base/vectors.h"
#include "transcode/segment_packer.h"

namespace fastload {
namespace {

struct Avx512Ops {
  static constexpr bool kCompresses = true;
  static uint64_t extract(uint64_t bits, uint64_t mask) { return _pext_u64(bits, mask); }
  static uint64_t with_bit(const uint8_t* values, int bit) {
    const __m512i wanted = _mm512_set1_epi8(static_cast<char>(1 << bit));
    return _cvtmask64_u64(_mm512_test_epi8_mask(load(values), wanted));
  }
  static uint64_t at_least(const uint8_t* values, int limit) {
    const __m512i least = _mm512_set1_epi8(static_cast<char>(limit));
    return _cvtmask64_u64(_mm512_cmpge_epu8_mask(load(values), least));
  }
  static uint64_t with_bit(const uint16_t* values, int bit) {
    const __m512i wanted = _mm512_set1_epi16(static_cast<int16_t>(1 << bit));
    return joined(_mm512_test_epi16_mask(load(values), wanted),
                  _mm512_test_epi16_mask(load(values + 32), wanted));
  }
  static uint64_t at_least(const uint16_t* values, int limit) {
    const __m512i least = _mm512_set1_epi16(static_cast<int16_t>(limit));
    return joined(_mm512_cmpge_epu16_mask(load(values), least),
                  _mm512_cmpge_epu16_mask(load(values + 32), least));
  }
  static void compress(const uint8_t* values, uint64_t mask, uint8_t* to) {
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi8(mask, load(values)));
  }
  static void compress(const uint16_t* values, uint64_t mask, uint16_t* to) {
    for (int half = 0; half < 2; ++half) {
      const auto part = static_cast<__mmask32>(mask >> (32 * half));
      _mm512_storeu_si512(to, _mm512_maskz_compress_epi16(part, load(values + 32 * half)));
      to += std::popcount(part);
    }
  }

 private:
  static uint64_t joined(__mmask32 low, __mmask32 high) {
    return _cvtmask32_u32(low) | uint64_t{_cvtmask32_u32(high)} << 32;
  }
  static __m512i load(const void* from) { return _mm512_loadu_si512(from); }
};

}  // namespace

size_t pack_segment_avx512(const SegmentCoding& coding, const MaskClasses& classes,
                           const SegmentShape& shape, const ListedSegment& segment, uint8_t* to) {
  return pack_segment_by<Avx512Ops>(coding, classes, shape, segment, to);
}

}  // namespace fastload

#endif
