// The crc32 instruction of SSE4.2: 8 bytes in 3 cycles, about 11 GB/s at 4 GHz.
#if defined(__x86_64__)
#include <nmmintrin.h>

#include <cstring>

#include "base/crc32c.h"

namespace fastload {

uint32_t crc32c_sse42(Bytes bytes, uint32_t crc);

uint32_t crc32c_sse42(Bytes bytes, uint32_t crc) {
  uint64_t c = ~crc;
  const uint8_t* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    c = _mm_crc32_u64(c, word);
  }
  for (; left > 0; --left, ++p) c = _mm_crc32_u8(static_cast<uint32_t>(c), *p);
  return ~static_cast<uint32_t>(c);
}

}  // namespace fastload
#endif
