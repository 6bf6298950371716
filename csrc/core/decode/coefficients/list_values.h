// The values of a list from its planes, as many words at a time as a vector of up to 256 bits has.
// Part of segment_vector.cpp.
//
// The planes of a magnitude are turned into its binary digits first, a word of 64 values at a time:
// with d levels, S_d is the highest digit of what is d levels deep. Then 8 digits of each value
// become a byte: in all vectors, bits change places as in the transposition of an 8 x 8 matrix.
#pragma once

#include "decode/coefficients/segment_reader.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

constexpr hn::CappedTag<uint8_t, 32> kBytes;
constexpr hn::Repartition<uint16_t, hn::CappedTag<uint8_t, 32>> kWords;
constexpr hn::Repartition<int16_t, hn::CappedTag<uint8_t, 32>> kSignedWords;
constexpr hn::RebindToSigned<hn::CappedTag<uint8_t, 32>> kSignedBytes;
using Bytes = hn::Vec<hn::CappedTag<uint8_t, 32>>;

constexpr size_t kLanes = hn::MaxLanes(kBytes);
constexpr size_t kGroupWords = kLanes / 8;  // of a plane, in a vector

// Digit b of a group's values into digits[b], and their signs into the last: 7 digits for bytes, 15
// for two.
template <size_t kDigits>
HWY_INLINE void load_digits(const ValuePlanes& planes, size_t word, Bytes (&digits)[kDigits]) {
  const auto load = [word](const ValuePlanes::Plane& plane) {
    return hn::BitCast(kBytes, hn::LoadU(hn::Repartition<uint64_t, hn::CappedTag<uint8_t, 32>>(),
                                         &plane[word]));
  };
  for (Bytes& digit : digits) digit = hn::Zero(kBytes);
  const auto rice = static_cast<size_t>(planes.rice), deepest = static_cast<size_t>(planes.deepest);
  for (size_t bit = 0; bit < rice; ++bit) digits[bit] = load(planes.raw[bit]);
  Bytes level = hn::Set(kBytes, 0xFF);
  for (size_t bit = 0; bit < deepest; ++bit) {
    const Bytes next = load(planes.deep[bit + 1]);
    digits[rice + bit] = hn::Or(hn::AndNot(next, level), load(planes.low[bit]));
    level = next;
  }
  digits[rice + deepest] = level;
  digits[kDigits - 1] = load(planes.sign);
}

// Bits kShift of the places in `a` and the others in `b` change places.
template <int kShift>
HWY_INLINE void swap_bits(Bytes& a, Bytes& b, Bytes mask) {
  const auto words = [](Bytes v) { return hn::BitCast(kWords, v); };
  const auto shifted = hn::BitCast(kBytes, hn::ShiftRight<kShift>(words(a)));
  const Bytes moved = hn::And(hn::Xor(shifted, b), mask);
  b = hn::Xor(b, moved);
  a = hn::Xor(a, hn::BitCast(kBytes, hn::ShiftLeft<kShift>(words(moved))));
}

// The lower and the upper lanes of T of each 128-bit part of a and b, alternating.
template <class T>
HWY_INLINE Bytes lower(Bytes a, Bytes b) {
  const hn::Repartition<T, hn::CappedTag<uint8_t, 32>> d;
  return hn::BitCast(kBytes, hn::InterleaveLower(d, hn::BitCast(d, a), hn::BitCast(d, b)));
}
template <class T>
HWY_INLINE Bytes upper(Bytes a, Bytes b) {
  const hn::Repartition<T, hn::CappedTag<uint8_t, 32>> d;
  return hn::BitCast(kBytes, hn::InterleaveUpper(d, hn::BitCast(d, a), hn::BitCast(d, b)));
}

// Eight planes to bytes: values kLanes i to kLanes (i + 1) - 1 in bytes[i].
HWY_INLINE void bytes_of(const Bytes* planes, Bytes* bytes) {
  Bytes p[8];
  for (size_t i = 0; i < 8; ++i) p[i] = planes[i];
  const Bytes ones = hn::Set(kBytes, 0x55), twos = hn::Set(kBytes, 0x33),
              fours = hn::Set(kBytes, 0x0F);
  for (size_t i = 0; i < 8; i += 2) swap_bits<1>(p[i], p[i + 1], ones);
  for (size_t i : {0, 1, 4, 5}) swap_bits<2>(p[i], p[i + 2], twos);
  for (size_t i = 0; i < 4; ++i) swap_bits<4>(p[i], p[i + 4], fours);
  // Byte k of p[i] is value 8 k + i.
  Bytes a[8], b[8];
  for (size_t i = 0; i < 4; ++i) {
    a[i] = lower<uint8_t>(p[2 * i], p[2 * i + 1]);
    a[i + 4] = upper<uint8_t>(p[2 * i], p[2 * i + 1]);
  }
  for (size_t i = 0; i < 8; i += 4) {
    b[i] = lower<uint16_t>(a[i], a[i + 1]), b[i + 1] = upper<uint16_t>(a[i], a[i + 1]);
    b[i + 2] = lower<uint16_t>(a[i + 2], a[i + 3]);
    b[i + 3] = upper<uint16_t>(a[i + 2], a[i + 3]);
  }
  for (size_t i = 0; i < 4; ++i) {
    const size_t from = i / 2 * 4 + i % 2;
    const Bytes first = lower<uint32_t>(b[from], b[from + 2]);
    const Bytes second = upper<uint32_t>(b[from], b[from + 2]);
    if (kLanes == 16) {
      bytes[2 * i] = first, bytes[2 * i + 1] = second;
    } else {
      bytes[i] = hn::ConcatLowerLower(kBytes, second, first);
      bytes[i + 4] = hn::ConcatUpperUpper(kBytes, second, first);
    }
  }
}

// `magnitude` with the sign of `sign`, which is not 0.
template <class V>
HWY_INLINE V with_sign(V magnitude, V sign) {
#if defined(__SSSE3__)
  constexpr bool is_byte = sizeof(hn::TFromV<V>) == 1;
#if defined(__AVX2__)
  return V{is_byte ? _mm256_sign_epi8(magnitude.raw, sign.raw)
                   : _mm256_sign_epi16(magnitude.raw, sign.raw)};
#else
  return V{is_byte ? _mm_sign_epi8(magnitude.raw, sign.raw)
                   : _mm_sign_epi16(magnitude.raw, sign.raw)};
#endif
#else
  const V is_negative = hn::BroadcastSignBit(sign);
  return hn::Sub(hn::Xor(magnitude, is_negative), is_negative);
#endif
}

// The digits say 2^rice - 1 more than a magnitude, which is never 0.
HWY_INLINE void store_values8(const ValuePlanes& planes, size_t word, int8_t* to) {
  Bytes digits[8], bytes[8];
  load_digits(planes, word, digits);
  bytes_of(digits, bytes);
  const auto less = hn::Set(kSignedBytes, static_cast<int8_t>(1 - (1 << planes.rice)));
  for (size_t i = 0; i < 8; ++i) {
    const auto all = hn::BitCast(kSignedBytes, bytes[i]);
    const auto magnitude = hn::Add(hn::And(all, hn::Set(kSignedBytes, int8_t{0x7F})), less);
    hn::StoreU(with_sign(magnitude, all), kSignedBytes, to + kLanes * i);
  }
}

HWY_INLINE void store_values16(const ValuePlanes& planes, size_t word, int8_t* low, int8_t* high) {
  Bytes digits[16], lows[8], highs[8];
  load_digits(planes, word, digits);
  bytes_of(digits, lows);
  bytes_of(digits + 8, highs);
  const auto less = hn::Set(kSignedWords, static_cast<int16_t>(1 - (1 << planes.rice)));
  // The low bytes of each 128-bit part, then the high ones.
  alignas(16) static constexpr std::array<uint8_t, 16> kOrder{0, 2, 4, 6, 8, 10, 12, 14,
                                                              1, 3, 5, 7, 9, 11, 13, 15};
  const Bytes order = hn::LoadDup128(kBytes, kOrder.data());
  const auto value = [less, order](Bytes digits_and_sign) {
    const auto all = hn::BitCast(kSignedWords, digits_and_sign);
    const auto most = hn::Set(kSignedWords, int16_t{0x7FFF});
    const auto values = with_sign(hn::Add(hn::And(all, most), less), all);
    return hn::TableLookupBytes(hn::BitCast(kBytes, values), order);
  };
  for (size_t i = 0; i < 8; ++i) {
    const Bytes first = value(lower<uint8_t>(lows[i], highs[i]));
    const Bytes second = value(upper<uint8_t>(lows[i], highs[i]));
    const auto store = [i](Bytes bytes, int8_t* to) {
      hn::StoreU(hn::BitCast(kSignedBytes, bytes), kSignedBytes, to + kLanes * i);
    };
    store(lower<uint64_t>(first, second), low);
    store(upper<uint64_t>(first, second), high);
  }
}

HWY_INLINE void store_values(const ValuePlanes& planes, const ListBytes& list) {
  for (size_t w = 0; w < planes.words; w += kGroupWords) {
    if (list.is_wide) {
      store_values16(planes, w, list.low + 64 * w, list.high + 64 * w);
    } else {
      store_values8(planes, w, list.low + 64 * w);
    }
  }
}

}  // namespace
}  // namespace fastload::FASTLOAD_LEVEL
