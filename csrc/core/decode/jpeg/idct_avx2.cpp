#if defined(__x86_64__)

#include "decode/jpeg/idct_v256.h"

namespace fastload {
void idct_avx2(int16_t* coefs, const uint16_t* steps, uint8_t* out, size_t stride, int count) {
  transform_groups<V256>(coefs, steps, out, stride, count);
}

}  // namespace fastload

#endif
