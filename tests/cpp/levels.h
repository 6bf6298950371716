// The SIMD levels that tests compare with the scalar code.
#pragma once

#include <array>
#include <vector>

#include "base/cpu.h"

namespace fastload::test {

// Those of this machine that FASTLOAD_SIMD allows, the scalar one first.
inline std::vector<SimdLevel> machine_levels() {
  const SimdLevel best = simd_level();
  std::vector<SimdLevel> levels;
  for (const SimdLevel level :
       {SimdLevel::kScalar, SimdLevel::kNeon, SimdLevel::kSse4, SimdLevel::kAvx2,
        SimdLevel::kAvx512}) {
    set_simd_level(simd_level_name(level));
    if (level <= best && simd_level() == level) levels.push_back(level);
  }
  set_simd_level(simd_level_name(best));
  return levels;
}

}  // namespace fastload::test
