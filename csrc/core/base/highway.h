// Google Highway for the level that a *_vector.cpp is being compiled for (CMakeLists.txt, base/kernels.h).
#pragma once

#if !defined(HWY_COMPILE_ONLY_EMU128)
#define HWY_COMPILE_ONLY_STATIC
#endif
// GCC 12 takes _mm512_undefined_*() for a use of an uninitialized value (gcc bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <hwy/highway.h>

namespace fastload::FASTLOAD_LEVEL {

namespace hn = hwy::HWY_NAMESPACE;

// a[2i] b[2i] + a[2i+1] b[2i+1], of signed 16 bits each: pmaddwd.
template <class D32, class V16 = hn::Vec<hn::Repartition<int16_t, D32>>>
HWY_INLINE hn::Vec<D32> pair_products(D32 d, V16 a, V16 b) {
  auto rest = hn::Zero(d);
  const auto products = hn::ReorderWidenMulAccumulate(d, a, b, hn::Zero(d), rest);
  return hn::RearrangeToOddPlusEven(products, rest);
}

// The same added to `sum`: vpdpwssd, which older Highways do not take.
template <class D32, class V32 = hn::Vec<D32>, class V16 = hn::Vec<hn::Repartition<int16_t, D32>>>
HWY_INLINE V32 add_pair_products(D32 d, V32 sum, V16 a, V16 b) {
#if defined(__AVX512VNNI__)
  if constexpr (sizeof(V32) == 64) return V32{_mm512_dpwssd_epi32(sum.raw, a.raw, b.raw)};
#endif
  return hn::Add(sum, pair_products(d, a, b));
}

// The bytes of `low` and then of `high` in each 128-bit block, saturated from signed 16 bits.
template <class D8, class V16 = hn::Vec<hn::Repartition<int16_t, D8>>>
HWY_INLINE hn::Vec<D8> pack_bytes([[maybe_unused]] D8 d, V16 low, V16 high) {
  [[maybe_unused]] constexpr bool is_signed = hwy::IsSigned<hn::TFromD<D8>>();
#if HWY_TARGET == HWY_AVX3
  return hn::Vec<D8>{is_signed ? _mm512_packs_epi16(low.raw, high.raw)
                               : _mm512_packus_epi16(low.raw, high.raw)};
#elif HWY_TARGET == HWY_AVX2
  return hn::Vec<D8>{is_signed ? _mm256_packs_epi16(low.raw, high.raw)
                               : _mm256_packus_epi16(low.raw, high.raw)};
#elif HWY_TARGET == HWY_SSE4
  return hn::Vec<D8>{is_signed ? _mm_packs_epi16(low.raw, high.raw)
                               : _mm_packus_epi16(low.raw, high.raw)};
#else
  const hn::Half<D8> half;
  return hn::Combine(d, hn::DemoteTo(half, high), hn::DemoteTo(half, low));
#endif
}

}  // namespace fastload::FASTLOAD_LEVEL
