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

// sum + a[2i] b[2i] + a[2i+1] b[2i+1], of signed 16 bits each: pmaddwd, or vpdpwssd, which older
// Highways do not take.
template <class D32, class V32 = hn::Vec<D32>, class V16 = hn::Vec<hn::Repartition<int16_t, D32>>>
HWY_INLINE V32 add_pair_products(D32 d, V32 sum, V16 a, V16 b) {
#if defined(__AVX512VNNI__)
  if constexpr (sizeof(V32) == 64) return V32{_mm512_dpwssd_epi32(sum.raw, a.raw, b.raw)};
#endif
  V32 rest = hn::Zero(d);
  const V32 products = hn::ReorderWidenMulAccumulate(d, a, b, hn::Zero(d), rest);
  return hn::Add(sum, hn::RearrangeToOddPlusEven(products, rest));
}

// float32 to bfloat16, rounded to nearest even. Not for NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void store_bfloat16(D, V value, uint16_t* to) {
  const hn::RebindToUnsigned<D> words;
  const hn::Rebind<uint16_t, D> halves;
  const auto bits = hn::BitCast(words, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(words, 0x7FFF)), odd);
#if HWY_TARGET == HWY_AVX3
  const hn::Repartition<uint16_t, D> all;
  const auto odd_words = hn::Add(hn::Iota(all, 1), hn::Iota(all, 0));
  const auto packed = _mm512_permutexvar_epi16(odd_words.raw, rounded.raw);
  hn::StoreU(hn::LowerHalf(hn::VFromD<decltype(all)>{packed}), halves, to);
#else
  hn::StoreU(hn::DemoteTo(halves, hn::BitCast(hn::RebindToSigned<decltype(words)>(), hn::ShiftRight<16>(rounded))), halves, to);
#endif
}

}  // namespace fastload::FASTLOAD_LEVEL
