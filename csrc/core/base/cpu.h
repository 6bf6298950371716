// Which instruction sets this process may use, found once at run time.
#pragma once

#include <string_view>

namespace fastload {

// In rising order. An x86-64 CPU has the levels kScalar, kSse4, kAvx2 and kAvx512, a 64-bit Arm CPU
// kScalar and kNeon (part of its baseline).
enum class SimdLevel { kScalar = 0, kNeon = 1, kSse4 = 2, kAvx2 = 3, kAvx512 = 4 };

// The best level that the CPU, the operating system and FASTLOAD_SIMD ("scalar", "neon", "sse4",
// "avx2", "avx512"; an upper bound, so "neon" means scalar on x86-64 and "avx2" NEON on Arm) allow.
// kSse4 means SSE4.2 and POPCNT (x86-64-v2), kAvx512 F, BW, CD, DQ, VL,
// VBMI, VBMI2, VNNI and VPOPCNTDQ together (Ice Lake, Zen 4).
SimdLevel simd_level();

// Lowers (never raises above what the machine has) the level for this process; for tests and
// benchmarks. Throws Error(kValue) for an unknown name. Not for use while decoding threads run.
void set_simd_level(std::string_view name);

std::string_view simd_level_name(SimdLevel level);

}  // namespace fastload
