// CRC-32C (Castagnoli, as in iSCSI and Btrfs): initial value and final XOR are all ones.
#pragma once

#include "base/bytes.h"

namespace fastload {

// The CRC of `bytes`; pass an earlier result as `crc` to continue it.
uint32_t crc32c(Bytes bytes, uint32_t crc = 0);

// The same by a table, one byte at a time: the reference, and the path of CPUs without an
// instruction for it (SSE4.2 on x86-64, the CRC32 extension on Arm).
uint32_t crc32c_table(Bytes bytes, uint32_t crc = 0);

}  // namespace fastload
