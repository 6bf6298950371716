// base/highway.h's fused multiply-add of a level without such an instruction, beside the C library's.
#include <bit>
#include <cmath>

#include "check.h"
#include "levels.h"
#include "random.h"

// Behind the others:
#include "base/highway.h"

namespace {

using fastload::test::Random;
namespace hn = fastload::FASTLOAD_LEVEL::hn;

// Of any bits, or with exponents near each other, so that sums are halfway or cancel.
float number(Random& random) {
  const auto bits = static_cast<uint32_t>(random.in(0, 0xFFFF)) << 16 |
                    static_cast<uint32_t>(random.in(0, 0xFFFF));
  const int shape = random.in(0, 3);
  if (shape == 0) return std::bit_cast<float>(bits);
  const float one = std::bit_cast<float>((bits & 0x807FFFFF) | 0x3F800000);
  if (shape == 1) return one;
  const float few = std::bit_cast<float>((bits & 0x80600001) | 0x3F800000);
  return std::ldexp(few, shape == 2 ? random.in(-30, 30) : random.in(-149, 127));
}

TEST(a_sum_is_rounded_once_without_such_an_instruction) {
  if (fastload::simd_level() < fastload::SimdLevel::kSse4) return;
  const hn::ScalableTag<float> d;
  constexpr size_t kLanes = hn::MaxLanes(hn::ScalableTag<float>());
  Random random(11);
  for (int turn = 0; turn < 200000; ++turn) {
    alignas(64) float a[kLanes], b[kLanes], c[kLanes], sums[kLanes];
    for (size_t i = 0; i < kLanes; ++i) {
      a[i] = number(random);
      b[i] = number(random);
      // Beside the product, too, and a little off what cancels it.
      c[i] = random.coin() ? number(random) : -a[i] * b[i] * static_cast<float>(random.in(1, 2));
    }
    using fastload::FASTLOAD_LEVEL::fused_multiply_add;
    hn::Store(fused_multiply_add(hn::Load(d, a), hn::Load(d, b), hn::Load(d, c)), d, sums);
    for (size_t i = 0; i < kLanes; ++i) {
      const float wanted = std::fma(a[i], b[i], c[i]);
      const bool same = std::bit_cast<uint32_t>(sums[i]) == std::bit_cast<uint32_t>(wanted);
      CHECK(same || (std::isnan(sums[i]) && std::isnan(wanted)));
    }
  }
}

}  // namespace
