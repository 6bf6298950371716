// Noise: every level against the draws spelled out.
#include <algorithm>
#include <vector>

#include "base/philox.h"
#include "check.h"
#include "levels.h"
#include "random.h"
#include "transform/pixels/noise_kernels.h"

namespace {

using fastload::NoiseTable;
using fastload::PhiloxKey;
using fastload::test::Random;

NoiseTable random_table(Random& random) {
  NoiseTable table;
  for (uint32_t& cell : table.cells) {
    cell = static_cast<uint32_t>(random.in(0, NoiseTable::kUnit - 1)) << 9 |
           static_cast<uint32_t>(random.in(0, 511));
  }
  table.wraps = random.coin();
  table.offset = table.wraps ? 0 : 255;
  return table;
}

uint8_t noisy(uint8_t value, size_t at, PhiloxKey key, const NoiseTable& table) {
  // Runs of 256 bytes take 64 blocks, the first words of all of them before the second ones.
  const auto block = static_cast<uint32_t>(at / 256 * 64 + at % 64);
  const uint32_t word = fastload::philox4x32({block, 0, 0, 0}, key)[at % 256 / 64];
  const uint32_t cell = word >> 23;
  const bool own = word % NoiseTable::kUnit < table.cells[cell] >> 9;
  const int number = static_cast<int>(own ? cell : table.cells[cell] % 512) - table.offset;
  return static_cast<uint8_t>(table.wraps ? value + number : std::clamp(value + number, 0, 255));
}

TEST(every_level_adds_what_is_drawn) {
  Random random(9);
  for (int turn = 0; turn < 200; ++turn) {
    const NoiseTable table = random_table(random);
    const PhiloxKey key{static_cast<uint32_t>(random.in(0, 0x7FFFFFFF)) * 3,
                        static_cast<uint32_t>(random.in(0, 0x7FFFFFFF)) * 3};
    const std::vector<uint8_t> in = random.samples(static_cast<size_t>(random.in(1, 2000)));
    std::vector<uint8_t> wanted = in;
    for (size_t i = 0; i < in.size(); ++i) wanted[i] = noisy(in[i], i, key, table);
    for (const auto level : fastload::test::machine_levels()) {
      std::vector<uint8_t> found = in;
      FASTLOAD_KERNEL_AT(level, add_noise)(found.data(), found.size(), key, table);
      CHECK(found == wanted);
    }
  }
}

}  // namespace
