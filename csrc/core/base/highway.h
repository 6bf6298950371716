// Google Highway for the level that a *_vector.cpp is being compiled for (CMakeLists.txt, base/kernels.h).
#pragma once

#if !defined(HWY_COMPILE_ONLY_EMU128)
#define HWY_COMPILE_ONLY_STATIC
#endif
// Debug builds' assertions call Highway's library, of which only the headers are here.
#define HWY_IS_DEBUG_BUILD 0
// GCC 12 takes _mm512_undefined_*() for a use of an uninitialized value (gcc bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <hwy/highway.h>

#include <cmath>
#include <type_traits>

namespace fastload::FASTLOAD_LEVEL {

namespace hn = hwy::HWY_NAMESPACE;

// A bit for each lane.
template <class D>
HWY_INLINE auto bits_of(D d, hn::Mask<D> mask) {
  constexpr size_t kLanes = hn::MaxLanes(D());
  using Upto16 = std::conditional_t<(kLanes > 8), uint16_t, uint8_t>;
  using Upto64 = std::conditional_t<(kLanes > 32), uint64_t, uint32_t>;
  std::conditional_t<(kLanes > 16), Upto64, Upto16> bits = 0;
  hn::StoreMaskBits(d, mask, reinterpret_cast<uint8_t*>(&bits));
  return std::common_type_t<decltype(bits), uint32_t>{bits};
}

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

// Half of what fused_multiply_add() does without such instructions: products of floats are exact in
// double, and a sum that is rounded to odd there becomes the float that one rounding gives.
template <class DF, class DD = hn::Repartition<double, DF>, class V = hn::Vec<DD>>
HWY_INLINE hn::Vec<hn::Half<DF>> rounded_once(DF, V product, V c) {
  const DD dd;
  const hn::RebindToSigned<DD> di;
  const V sum = hn::Add(product, c);
  const V part = hn::Sub(sum, product);
  const V lost = hn::Add(hn::Sub(product, hn::Sub(sum, part)), hn::Sub(c, part));
  // Bits, as whole numbers, grow away from zero.
  const V outward = hn::Xor(lost, hn::And(sum, hn::SignBit(dd)));
  const auto up = hn::BitCast(di, hn::VecFromMask(dd, hn::Gt(outward, hn::Zero(dd))));
  const auto down = hn::BitCast(di, hn::VecFromMask(dd, hn::Lt(outward, hn::Zero(dd))));
  const auto bits = hn::BitCast(di, sum);
  const auto even = hn::Sub(hn::And(bits, hn::Set(di, 1)), hn::Set(di, 1));
  const auto odd = hn::Add(hn::Sub(bits, hn::And(up, even)), hn::And(down, even));
  return hn::DemoteTo(hn::Half<DF>(), hn::BitCast(dd, odd));
}

// a b + c of floats, rounded once, on every level.
template <class V>
HWY_INLINE V fused_multiply_add(V a, V b, V c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#elif HWY_TARGET == HWY_EMU128
  V sums = c;
  for (size_t i = 0; i < hn::MaxLanes(hn::DFromV<V>()); ++i) {
    sums.raw[i] = std::fma(a.raw[i], b.raw[i], c.raw[i]);
  }
  return sums;
#else
  const hn::DFromV<V> df;
  const hn::Half<decltype(df)> half;
  const hn::Repartition<double, decltype(df)> dd;
  const auto lower = [&](V v) { return hn::PromoteTo(dd, hn::LowerHalf(v)); };
  const auto upper = [&](V v) { return hn::PromoteTo(dd, hn::UpperHalf(half, v)); };
  return hn::Combine(df, rounded_once(df, hn::Mul(upper(a), upper(b)), upper(c)),
                     rounded_once(df, hn::Mul(lower(a), lower(b)), lower(c)));
#endif
}

// Whole numbers towards zero, of values that 32 bits hold: ConvertTo() looks for larger ones, too.
template <class DI, class VF>
HWY_INLINE hn::Vec<DI> truncated(DI d, VF value) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (sizeof(VF) == 64) return hn::Vec<DI>{_mm512_cvttps_epi32(value.raw)};
#elif HWY_TARGET == HWY_AVX2
  if constexpr (sizeof(VF) == 32) return hn::Vec<DI>{_mm256_cvttps_epi32(value.raw)};
#elif HWY_TARGET == HWY_SSE4
  if constexpr (sizeof(VF) == 16) return hn::Vec<DI>{_mm_cvttps_epi32(value.raw)};
#endif
  return hn::ConvertTo(d, value);
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

// float32 to bfloat16, rounded to nearest even. Not for NaN.
template <class DF, class VF = hn::Vec<DF>>
HWY_INLINE auto to_bfloat16(DF, VF value) {
  const hn::RebindToUnsigned<DF> words;
  const auto bits = hn::BitCast(words, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(words, 0x7FFF)), odd);
#if HWY_TARGET == HWY_AVX3
  const hn::Repartition<uint16_t, DF> all;
  const auto odd_words = hn::Add(hn::Iota(all, 1), hn::Iota(all, 0));
  using Words = hn::Vec<hn::Repartition<uint16_t, DF>>;
  return hn::LowerHalf(Words{_mm512_permutexvar_epi16(odd_words.raw, rounded.raw)});
#else
  const auto numbers = hn::BitCast(hn::RebindToSigned<DF>(), hn::ShiftRight<16>(rounded));
  return hn::DemoteTo(hn::Rebind<uint16_t, DF>(), numbers);
#endif
}

}  // namespace fastload::FASTLOAD_LEVEL
