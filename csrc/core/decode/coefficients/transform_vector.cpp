// The values of blocks side by side to their places, dequantised, and the inverse DCT.
#include <array>
#include <bit>

#include "decode/coefficients/segment.h"
#include "decode/jpeg/idct.h"
// Behind the others:
#include "base/highway.h"
#include "decode/jpeg/idct_passes.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

// Values to their places one by one.
[[maybe_unused, gnu::noinline]] void transform_by_idct(const SegmentBlocks& blocks, size_t first,
                                                       size_t count, const uint16_t* steps,
                                                       uint8_t* out, size_t stride) {
  static const CoefPlaces places = kIdct.places();
  thread_local std::array<int16_t, (kMaxSegmentBlocks + 4) * 64> coefs{};  // left zero
  const uint8_t* const place = places.data();
  for (size_t i = 0; i < count; ++i) {
    int16_t* const block = coefs.data() + kIdct.block_offset(static_cast<int>(i));
    block[0] = blocks.dc[first + i];
    const uint64_t lows = blocks.lows[first + i];
    size_t next[2] = {blocks.starts[1][first + i], blocks.starts[0][first + i]};
    for (uint64_t left = blocks.masks[first + i]; left != 0; left &= left - 1) {
      const int k = std::countr_zero(left);
      const auto is_low = static_cast<size_t>(lows >> k & 1);
      const size_t list = 1 - is_low, at = next[is_low]++;
      block[place[k + 1]] = value_at(blocks, list, at);
    }
  }
  kIdct.transform(coefs.data(), steps, out, stride, static_cast<int>(count));
}

}  // namespace
}  // namespace fastload::FASTLOAD_LEVEL

#if HWY_TARGET == HWY_AVX3
#include "decode/coefficients/transform_avx512.h"
#elif HWY_TARGET != HWY_EMU128
#include "decode/coefficients/transform_shuffles.h"
#else
namespace fastload::FASTLOAD_LEVEL {

void transform_segment(const SegmentBlocks& blocks, size_t first, size_t count,
                       const uint16_t* steps, uint8_t* out, size_t stride) {
  transform_by_idct(blocks, first, count, steps, out, stride);
}

}  // namespace fastload::FASTLOAD_LEVEL
#endif
