#if defined(__x86_64__)

#include "base/vectors.h"
#include "decode/jpeg/bits.h"

namespace fastload {

UnstuffResult unstuff_avx2(const uint8_t* source, const uint8_t* end, uint8_t* target) {
  const __m256i all_ones = _mm256_set1_epi8(-1);
  while (end - source > 32) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
    const auto ff = static_cast<unsigned>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, all_ones)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), bytes);
    if (ff == 0) {
      source += 32;
      target += 32;
      continue;
    }
    const unsigned first = _tzcnt_u32(ff);
    if (source[first + 1] != 0) break;
    source += first + 2;
    target += first + 1;
  }
  return unstuff_scalar(source, end, target);
}

}  // namespace fastload

#endif
