// Repeatable random numbers for tests.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace fastload::test {

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int in(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool coin() { return in(0, 1) != 0; }
  // Any byte, or one of the outermost two.
  uint8_t sample() { return static_cast<uint8_t>(coin() ? in(0, 255) : 255 * in(0, 1)); }
  std::vector<uint8_t> samples(size_t size) {
    std::vector<uint8_t> out(size);
    for (uint8_t& byte : out) byte = sample();
    return out;
  }

 private:
  std::mt19937 engine_;
};

}  // namespace fastload::test
