#if defined(__x86_64__)

#include <algorithm>
#include <array>

#include "base/vectors.h"
#include "transcode/block_lists_loop.h"

namespace fastload {

void list_blocks_avx512(int16_t* blocks, size_t count, ListEnd& end) {
  size_t used = end.used;
  const __m512i zero = _mm512_setzero_si512();
  __m512i largest = zero;
  for (size_t i = 0; i < count; ++i, blocks += 64) {
    *end.dc++ = blocks[0];
    const __m512i low = _mm512_maskz_mov_epi16(~__mmask32{1}, _mm512_loadu_si512(blocks));
    const __m512i high = _mm512_loadu_si512(blocks + 32);
    _mm512_storeu_si512(blocks, zero);
    _mm512_storeu_si512(blocks + 32, zero);
    const __mmask32 in_low = _mm512_test_epi16_mask(low, low);
    const __mmask32 in_high = _mm512_test_epi16_mask(high, high);
    const uint64_t mask = _cvtmask32_u32(in_low) | uint64_t{_cvtmask32_u32(in_high)} << 32;
    *end.masks++ = mask;
    *end.starts++ = used;
    const auto before = static_cast<size_t>(std::popcount(static_cast<uint32_t>(mask)));
    _mm512_storeu_si512(end.values + used, _mm512_maskz_compress_epi16(in_low, low));
    _mm512_storeu_si512(end.values + used + before, _mm512_maskz_compress_epi16(in_high, high));
    used += static_cast<size_t>(std::popcount(mask));
    largest =
        _mm512_max_epu16(largest, _mm512_max_epu16(_mm512_abs_epi16(low), _mm512_abs_epi16(high)));
  }
  end.used = used;
  alignas(64) std::array<uint16_t, 32> all;
  _mm512_store_si512(all.data(), largest);
  for (const uint16_t one : all) end.largest = std::max(end.largest, one);
}

void list_segment_avx512(const SegmentBlocks& blocks, size_t count, ListEnd& end) {
  list_segment(blocks, count, end);
}

}  // namespace fastload

#endif
