#include "decode/gray.h"

#include "decode/gray_loop.h"

namespace fastload {

GrayLine gray_line(SimdLevel level) {
#if defined(__x86_64__)
  if (level == SimdLevel::kAvx512) return gray_line_avx512;
  if (level == SimdLevel::kAvx2) return gray_line_avx2;
#endif
  (void)level;
  return [](const uint8_t* rgb, size_t count, uint8_t* gray) { gray_loop(rgb, count, gray); };
}

}  // namespace fastload
