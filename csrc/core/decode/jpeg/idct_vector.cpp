#include "decode/jpeg/idct.h"

#include <algorithm>

// Behind the others:
#include "base/highway.h"
#include "decode/jpeg/idct_passes.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

// The blocks whose rows below the first are zero.
Blocks flat_blocks(const Pair* coefs) {
#if HWY_TARGET == HWY_NEON
  Words used = coefs[0].second;
#else
  const Words both = hn::Or(coefs[0].first, coefs[0].second);
  Words used = hn::BitCast(kWords, hn::ShiftRight<16>(hn::BitCast(kUnsigned, both)));
#endif
  for (size_t i = 1; i < 4; ++i) used = hn::Or(used, hn::Or(coefs[i].first, coefs[i].second));
  const auto halves = hn::BitCast(kLong, used);
  return hn::Eq(hn::Or(halves, hn::Shuffle01(halves)), hn::Zero(kLong));
}

void transform_group(int16_t* coefs, const Pair* steps, uint8_t* out, size_t stride) {
  constexpr size_t kLanes = 8 * kIdctBlocks;
  const hn::RebindToUnsigned<hn::ScalableTag<int16_t>> d;
  Pair x[4];
  Words y[8];
  for (size_t i = 0; i < 4; ++i) {
    int16_t* const at = coefs + 2 * i * kLanes;
    x[i] = {hn::LoadU(kWords, at), hn::LoadU(kWords, at + kLanes)};
    hn::StoreU(hn::Zero(kWords), kWords, at);
    hn::StoreU(hn::Zero(kWords), kWords, at + kLanes);
  }
  const Blocks flat = flat_blocks(x);
  for (size_t i = 0; i < 4; ++i) {
    const auto times = [d](Words a, Words b) {
      return hn::BitCast(kWords, hn::Mul(hn::BitCast(d, a), hn::BitCast(d, b)));
    };
    x[i] = {times(x[i].first, steps[i].first), times(x[i].second, steps[i].second)};
  }
  if (hn::AllTrue(kLong, flat)) {
    std::fill(y, y + 8, flat_row(x[0]));
  } else {
    idct_pass<11>(x, y);
    if (may_overflow(x[0])) [[unlikely]] put_flat_rows(flat, x[0], y);
  }
  finish_idct(y, out, stride);
}

void transform(int16_t* coefs, const uint16_t* steps, uint8_t* out, size_t stride, int count) {
  Pair pairs[4];
  load_steps(steps, pairs);
  for (int block = 0; block < count; block += static_cast<int>(kIdctBlocks)) {
    transform_group(coefs, pairs, out, stride);
    coefs += kIdctBlocks * 64;
    out += kIdctBlocks * 8;
  }
}

}  // namespace

const IdctKernel kIdct{static_cast<int>(kIdctBlocks), transform, kIdctPlaces};

}  // namespace fastload::FASTLOAD_LEVEL
