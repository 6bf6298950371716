#include "read_ahead/kept_share.h"

namespace fastload {
namespace {

constexpr uint64_t kRegion = 4 << 20;
constexpr double kWhole = 0x1.0p64;

// SplitMix64's finaliser (Steele, Lea and Flood, 2014).
uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

}  // namespace

bool is_kept(uint32_t shard, uint64_t offset, double share) noexcept {
  if (share >= 1) return true;
  const uint64_t region = offset / kRegion ^ (uint64_t{shard} << 40);
  return static_cast<double>(mix(region + 1)) < share * kWhole;
}

}  // namespace fastload
