// Upsampling and colour on vectors of 16-bit lanes. Included by one source file for each
// instruction set, which names its vector operations in a type V; everything here has internal
// linkage.
#pragma once

#include "decode/jpeg/color.h"

namespace fastload {
namespace {

template <class V>
typename V::T triple(typename V::T a) {
  return V::add(V::template shift_left<1>(a), a);
}

template <class V>
void h2v1_rows(const uint8_t* in, uint8_t* out, int count) {
  const auto one = V::set(1), two = V::set(2);
  for (int i = 0; i < count; i += V::kLanes) {
    const auto here = triple<V>(V::widen(in + i));
    const auto even = V::template shift_right<2>(V::add(V::add(here, V::widen(in + i - 1)), one));
    const auto odd = V::template shift_right<2>(V::add(V::add(here, V::widen(in + i + 1)), two));
    V::store(out + 2 * i, V::or_bits(even, V::template shift_left<8>(odd)));
  }
}

template <class V>
void h2v2_rows(const uint8_t* near, const uint8_t* far, uint8_t* out, int count) {
  const auto seven = V::set(7), eight = V::set(8);
  const auto column = [=](int i) {
    return V::add(triple<V>(V::widen(near + i)), V::widen(far + i));
  };
  for (int i = 0; i < count; i += V::kLanes) {
    const auto here = triple<V>(column(i));
    const auto even = V::template shift_right<4>(V::add(V::add(here, column(i - 1)), eight));
    const auto odd = V::template shift_right<4>(V::add(V::add(here, column(i + 1)), seven));
    V::store(out + 2 * i, V::or_bits(even, V::template shift_left<8>(odd)));
  }
}

template <class V>
void h1v2_rows(const uint8_t* near, const uint8_t* far, int bias, uint8_t* out, int count) {
  const auto rounding = V::set(bias);
  for (int i = 0; i < count; i += V::kLanes) {
    const auto sum = V::add(V::add(triple<V>(V::widen(near + i)), V::widen(far + i)), rounding);
    V::narrow_store(out + i, V::template shift_right<2>(sum));
  }
}

// One half (the low or high bytes of each 128-bit lane) of a vector of pixels in 16-bit arithmetic.
template <class V>
struct Rgb16 {
  typename V::T r, g, b;
};

// The factors beyond whole multiples, split so that 16 bits hold them: R = y + v + 0.402 v,
// G = y - v - 0.34414 u + 0.28586 v, B = y + 2 u - 0.228 u. For 8-bit samples the rounding multiply
// by 13173 / 2^15 gives what jdcolor.c's (26345 v + 32768) >> 16 gives; the others are its own
// factors.
template <class V>
Rgb16<V> convert_half(typename V::T y, typename V::T u, typename V::T v) {
  const auto r = V::add(V::add(y, v), V::mul_round(v, V::set(13173)));
  const auto b = V::add(V::add(y, V::add(u, u)), V::mul_round(u, V::set(-7471)));
  const auto mixed = V::mul_pairs_shift16(u, v, -22554, 18734, 32768);
  const auto g = V::add(V::sub(y, v), mixed);
  return {r, g, b};
}

template <class V>
void ycc_rows(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, uint8_t* rgb, int count) {
  const auto zero = V::set(0), middle = V::set(128);
  for (int i = 0; i < count; i += 2 * V::kLanes) {
    const auto yy = V::load(y + i), uu = V::load(cb + i), vv = V::load(cr + i);
    const Rgb16<V> low =
        convert_half<V>(V::unpack_low8(yy, zero), V::sub(V::unpack_low8(uu, zero), middle),
                        V::sub(V::unpack_low8(vv, zero), middle));
    const Rgb16<V> high =
        convert_half<V>(V::unpack_high8(yy, zero), V::sub(V::unpack_high8(uu, zero), middle),
                        V::sub(V::unpack_high8(vv, zero), middle));
    V::store_rgb(rgb + 3 * i, V::pack(low.r, high.r), V::pack(low.g, high.g),
                 V::pack(low.b, high.b));
  }
}

template <class V>
void gray_rows(const uint8_t* y, uint8_t* rgb, int count) {
  for (int i = 0; i < count; i += 2 * V::kLanes) {
    const auto value = V::load(y + i);
    V::store_rgb(rgb + 3 * i, value, value, value);
  }
}

}  // namespace
}  // namespace fastload
