// Which of 64 values, a bit each, and those alone. For *_vector.cpp files, behind base/highway.h.
#pragma once

#include <array>
#include <bit>

namespace fastload::FASTLOAD_LEVEL {
namespace {

// Those whose vectors (of `d`) pass the test.
template <class D, class Test>
HWY_INLINE uint64_t chosen(D d, const hn::TFromD<D>* values, Test test) {
  uint64_t bits = 0;
  for (size_t at = 0; at < 64; at += hn::MaxLanes(d)) {
    bits |= uint64_t{bits_of(d, test(hn::LoadU(d, values + at)))} << at;
  }
  return bits;
}

// For each mask of eight values the places of their bytes, one behind the other.
template <class Value>
constexpr std::array<std::array<uint8_t, 8 * sizeof(Value)>, 256> kOrders = [] {
  std::array<std::array<uint8_t, 8 * sizeof(Value)>, 256> all{};
  for (size_t mask = 0; mask < 256; ++mask) {
    size_t at = 0;
    for (size_t byte = 0; byte < 8 * sizeof(Value); ++byte) {
      if ((mask >> (byte / sizeof(Value)) & 1) != 0) all[mask][at++] = static_cast<uint8_t>(byte);
    }
  }
  return all;
}();

// Puts those of `mask` one behind the other; up to 64 are written.
template <class Value>
HWY_INLINE void compress(const Value* values, uint64_t mask, Value* to) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (sizeof(Value) == 1) {
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi8(mask, _mm512_loadu_si512(values)));
  } else {
    for (int half = 0; half < 2; ++half, values += 32) {
      const auto part = static_cast<__mmask32>(mask >> (32 * half));
      _mm512_storeu_si512(to, _mm512_maskz_compress_epi16(part, _mm512_loadu_si512(values)));
      to += std::popcount(part);
    }
  }
#else
  constexpr hn::FixedTag<uint8_t, 8 * sizeof(Value)> d;
  for (; mask != 0; mask >>= 8, values += 8) {
    const auto order = hn::LoadU(d, kOrders<Value>[mask & 0xFF].data());
    const auto eight = hn::LoadU(d, reinterpret_cast<const uint8_t*>(values));
    hn::StoreU(hn::TableLookupBytes(eight, order), d, reinterpret_cast<uint8_t*>(to));
    to += std::popcount(mask & 0xFF);
  }
#endif
}

}  // namespace
}  // namespace fastload::FASTLOAD_LEVEL
