#include "base/crc32c.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <array>
#include <cstring>

namespace fastload {

#if defined(__x86_64__)
uint32_t crc32c_sse42(Bytes bytes, uint32_t crc);  // crc32c_sse42.cpp
#elif defined(__aarch64__)
uint32_t crc32c_arm(Bytes bytes, uint32_t crc);  // crc32c_arm.cpp
#endif

namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) ? 0x82F63B78u : 0u);
    table[i] = c;
  }
  return table;
}
constexpr auto kTable = make_table();

}  // namespace

uint32_t crc32c_table(Bytes bytes, uint32_t crc) {
  crc = ~crc;
  for (const uint8_t byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ byte) & 0xFF];
  return ~crc;
}

uint32_t crc32c(Bytes bytes, uint32_t crc) {
#if defined(__x86_64__)
  static const bool hardware = (__builtin_cpu_init(), __builtin_cpu_supports("sse4.2"));
  if (hardware) return crc32c_sse42(bytes, crc);
#elif defined(__aarch64__)
  static const bool hardware = (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
  if (hardware) return crc32c_arm(bytes, crc);
#endif
  return crc32c_table(bytes, crc);
}

}  // namespace fastload
