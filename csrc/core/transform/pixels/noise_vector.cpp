// The loops of gaussian_noise, which compilers vectorise.
#include <algorithm>

#include "transform/pixels/noise_kernels.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

constexpr size_t kBlocks = 64;        // of Philox, side by side
constexpr size_t kRun = 4 * kBlocks;  // words of these, and bytes that they are for

// philox4x32({first + i, 0, 0, 0}, key) of i in [0, kBlocks): word by word, not block by block.
void philox_blocks(uint32_t first, PhiloxKey key, uint32_t* __restrict__ words) {
  uint32_t* __restrict__ const a = words;
  uint32_t* __restrict__ const b = words + kBlocks;
  uint32_t* __restrict__ const c = words + 2 * kBlocks;
  uint32_t* __restrict__ const d = words + 3 * kBlocks;
  for (size_t i = 0; i < kBlocks; ++i) {
    a[i] = first + static_cast<uint32_t>(i);
    b[i] = c[i] = d[i] = 0;
  }
  for (int round = 0; round < 10; ++round) {
    for (size_t i = 0; i < kBlocks; ++i) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * a[i];
      const uint64_t p1 = uint64_t{0xCD9E8D57u} * c[i];
      a[i] = static_cast<uint32_t>(p1 >> 32) ^ b[i] ^ key.k0;
      c[i] = static_cast<uint32_t>(p0 >> 32) ^ d[i] ^ key.k1;
      b[i] = static_cast<uint32_t>(p1);
      d[i] = static_cast<uint32_t>(p0);
    }
    key.k0 += 0x9E3779B9u;
    key.k1 += 0xBB67AE85u;
  }
}

}  // namespace

void add_noise(uint8_t* __restrict__ bytes, size_t count, PhiloxKey key, const NoiseTable& table) {
  alignas(64) uint32_t words[kRun];
  alignas(64) int16_t noise[kRun];
  for (size_t from = 0; from < count; from += kRun) {
    philox_blocks(static_cast<uint32_t>(from / 4), key, words);
    for (size_t i = 0; i < kRun; ++i) {
      const uint32_t cell = words[i] >> 23;
      const uint32_t entry = table.cells[cell];
      const bool own = words[i] % NoiseTable::kUnit < entry >> 9;
      const uint32_t number = own ? cell : entry % NoiseTable::kCells;
      noise[i] = static_cast<int16_t>(static_cast<int>(number) - table.offset);
    }
    uint8_t* __restrict__ const to = bytes + from;
    const size_t end = std::min(kRun, count - from);
    if (table.wraps) {
      for (size_t i = 0; i < end; ++i) to[i] = static_cast<uint8_t>(to[i] + noise[i]);
      continue;
    }
    for (size_t i = 0; i < end; ++i) {
      const auto sum = static_cast<int16_t>(to[i] + noise[i]);
      to[i] = static_cast<uint8_t>(std::clamp<int16_t>(sum, 0, 255));
    }
  }
}

}  // namespace fastload::FASTLOAD_LEVEL
