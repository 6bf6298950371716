#include "base/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <array>
#include <cstdlib>
#include <string>

#include "base/error.h"

namespace fastload {
namespace {

constexpr std::array<std::string_view, 5> kNames{"scalar", "neon", "sse4", "avx2", "avx512"};

SimdLevel level_by_name(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<SimdLevel>(i);
  }
  throw Error(ErrorKind::kValue, "SIMD level must be scalar, neon, sse4, avx2 or avx512. Found: " +
                                     std::string(name) + ". Check FASTLOAD_SIMD.");
}

#if defined(__x86_64__)
// By CPUID itself: clang 14 does not know the name "f16c".
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

SimdLevel machine_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("popcnt")) {
    return SimdLevel::kScalar;
  }
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi2") && has_f16c();
  if (!avx2) return SimdLevel::kSse4;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vbmi") &&
                      __builtin_cpu_supports("avx512vbmi2") &&
                      __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512vpopcntdq");
  return avx512 ? SimdLevel::kAvx512 : SimdLevel::kAvx2;
#elif defined(__aarch64__)
  return SimdLevel::kNeon;
#else
  return SimdLevel::kScalar;
#endif
}

// The best level of this machine that is not above the wanted one.
SimdLevel capped(SimdLevel wanted) {
  static const SimdLevel machine = machine_level();
  if (wanted >= machine) return machine;
#if defined(__x86_64__)
  if (wanted == SimdLevel::kNeon) return SimdLevel::kScalar;
#endif
  return wanted;
}

SimdLevel& current_level() {
  static SimdLevel level = [] {
    const char* wanted = std::getenv("FASTLOAD_SIMD");
    return capped(wanted == nullptr || *wanted == '\0' ? SimdLevel::kAvx512
                                                       : level_by_name(wanted));
  }();
  return level;
}

}  // namespace

SimdLevel simd_level() { return current_level(); }

void set_simd_level(std::string_view name) { current_level() = capped(level_by_name(name)); }

std::string_view simd_level_name(SimdLevel level) { return kNames[static_cast<size_t>(level)]; }

}  // namespace fastload
