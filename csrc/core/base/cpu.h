// Which instruction sets this process may use, found once at run time.
#pragma once

#include <string_view>

namespace fastload {

enum class SimdLevel { kScalar = 0, kAvx2 = 1, kAvx512 = 2 };

// The best level that the CPU, the operating system and FASTLOAD_SIMD ("scalar", "avx2", "avx512";
// an upper bound) allow. kAvx512 means F, BW, DQ, VL, VBMI, VBMI2 and VNNI together.
SimdLevel simd_level();

// Lowers (never raises above what the machine has) the level for this process; for tests and
// benchmarks. Throws Error(kValue) for an unknown name. Not for use while decoding threads run.
void set_simd_level(std::string_view name);

std::string_view simd_level_name(SimdLevel level);

}  // namespace fastload
