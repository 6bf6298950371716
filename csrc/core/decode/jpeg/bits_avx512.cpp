#if defined(__x86_64__)

#include "base/vectors.h"
#include "decode/jpeg/bits.h"

namespace fastload {

UnstuffResult unstuff_avx512(const uint8_t* source, const uint8_t* end, uint8_t* target) {
  const __m512i all_ones = _mm512_set1_epi8(-1);
  while (source < end) {
    const auto left = static_cast<size_t>(end - source);
    const size_t count = left < 64 ? left : 64;
    const __mmask64 valid = _bzhi_u64(~uint64_t{0}, static_cast<unsigned>(count));
    const __m512i bytes = _mm512_maskz_loadu_epi8(valid, source);
    const __mmask64 ff = _mm512_mask_cmpeq_epi8_mask(valid, bytes, all_ones);
    if (ff == 0) {
      _mm512_storeu_si512(target, bytes);
      source += count;
      target += count;
      continue;
    }
    if (left <= 64 && (ff >> (count - 1) & 1) != 0) break;  // an FF with nothing behind it
    const __m512i following = _mm512_maskz_loadu_epi8(left > 64 ? valid : valid >> 1, source + 1);
    if (_mm512_mask_test_epi8_mask(ff, following, following) != 0) break;  // a marker
    const __mmask64 keep = valid & ~(ff << 1);
    _mm512_storeu_si512(target, _mm512_maskz_compress_epi8(keep, bytes));
    target += _mm_popcnt_u64(keep);
    source += count + (ff >> 63);  // a last FF takes its 00 along
  }
  return unstuff_scalar(source, end, target);
}

}  // namespace fastload

#endif
