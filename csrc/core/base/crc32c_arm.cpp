// The crc32cx instruction of Armv8's CRC32 extension (optional in Armv8.0, so it is asked for at
// run time).
#if defined(__aarch64__)
#include <arm_acle.h>

#include "base/crc32c.h"
#include "base/crc32c_lanes.h"

namespace fastload {
namespace {

uint32_t eight(uint32_t crc, uint64_t word) { return __crc32cd(crc, word); }
uint32_t one(uint32_t crc, uint8_t byte) { return __crc32cb(crc, byte); }

}  // namespace

uint32_t crc32c_arm(Bytes bytes, uint32_t crc);

uint32_t crc32c_arm(Bytes bytes, uint32_t crc) { return crc32c_lanes::run<eight, one>(bytes, crc); }

}  // namespace fastload
#endif
