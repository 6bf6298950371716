#include "decode/gray.h"

#if defined(__x86_64__)
#include "decode/gray_loop.h"

namespace fastload {

void gray_line_avx2(const uint8_t* rgb, size_t count, uint8_t* gray) {
  gray_loop(rgb, count, gray);
}

}  // namespace fastload
#endif
