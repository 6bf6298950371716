// A loop that compilers vectorise.
#include "decode/gray.h"

namespace fastload::FASTLOAD_LEVEL {

// libImaging/Convert.c, rgb2l: ITU-R 601-2 in 16-bit fixed point, rounded.
void gray_line(const uint8_t* __restrict__ rgb, size_t count, uint8_t* __restrict__ gray) {
  for (size_t i = 0; i < count; ++i) {
    const uint32_t sum = rgb[3 * i] * 19595u + rgb[3 * i + 1] * 38470u + rgb[3 * i + 2] * 7471u;
    gray[i] = static_cast<uint8_t>((sum + 0x8000u) >> 16);
  }
}

}  // namespace fastload::FASTLOAD_LEVEL
