#if defined(__aarch64__)

#include <arm_neon.h>

#include <bit>

#include "decode/jpeg/bits.h"

namespace fastload {

UnstuffResult unstuff_neon(const uint8_t* source, const uint8_t* end, uint8_t* target) {
  while (end - source > 16) {
    const uint8x16_t bytes = vld1q_u8(source);
    const uint16x8_t is_ff = vreinterpretq_u16_u8(vceqq_u8(bytes, vdupq_n_u8(0xFF)));
    // Four bits for each byte: NEON has no movemask.
    const uint64_t ff = vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(is_ff, 4)), 0);
    vst1q_u8(target, bytes);
    if (ff == 0) {
      source += 16;
      target += 16;
      continue;
    }
    const int first = std::countr_zero(ff) / 4;
    if (source[first + 1] != 0) break;
    source += first + 2;
    target += first + 1;
  }
  return unstuff_scalar(source, end, target);
}

}  // namespace fastload

#endif
