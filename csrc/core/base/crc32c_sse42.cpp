// The crc32 instruction of SSE4.2.
#if defined(__x86_64__)
#include <nmmintrin.h>

#include "base/crc32c.h"
#include "base/crc32c_lanes.h"

namespace fastload {
namespace {

uint32_t eight(uint32_t crc, uint64_t word) {
  return static_cast<uint32_t>(_mm_crc32_u64(crc, word));
}
uint32_t one(uint32_t crc, uint8_t byte) { return _mm_crc32_u8(crc, byte); }

}  // namespace

uint32_t crc32c_sse42(Bytes bytes, uint32_t crc);

uint32_t crc32c_sse42(Bytes bytes, uint32_t crc) {
  return crc32c_lanes::run<eight, one>(bytes, crc);
}

}  // namespace fastload
#endif
