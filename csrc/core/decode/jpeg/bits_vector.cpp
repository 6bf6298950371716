#include "decode/jpeg/bits.h"
// Behind the others:
#include "base/highway.h"

namespace fastload::FASTLOAD_LEVEL {

UnstuffResult unstuff(const uint8_t* source, const uint8_t* end, uint8_t* target) {
  constexpr hn::ScalableTag<uint8_t> kBytes;
  constexpr auto kLanes = static_cast<ptrdiff_t>(hn::MaxLanes(kBytes));
  while (end - source > kLanes) {
    const auto bytes = hn::LoadU(kBytes, source);
    const auto is_ff = hn::Eq(bytes, hn::Set(kBytes, 0xFF));
    hn::StoreU(bytes, kBytes, target);
    const ptrdiff_t first = hn::FindFirstTrue(kBytes, is_ff);
    if (first < 0) {
      source += kLanes;
      target += kLanes;
      continue;
    }
    if (source[first + 1] != 0) break;
    source += first + 2;
    target += first + 1;
  }
  while (source < end) {
    if (*source == 0xFF && (end - source < 2 || source[1] != 0)) break;
    *target++ = *source;
    source += *source == 0xFF ? 2 : 1;
  }
  return {source, target};
}

}  // namespace fastload::FASTLOAD_LEVEL
