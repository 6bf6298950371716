// The inverse DCT on whole groups of blocks, one block in each 128-bit lane. Included by one source
// file for each instruction set, which names its vector operations in a type V; everything here has
// internal linkage.
#pragma once

#include <cstddef>
#include <cstdint>

#include "decode/jpeg/idct.h"

namespace fastload {
namespace {

// The two halves of eight 32-bit sums for one row of the group.
template <class V>
struct Wide {
  typename V::T low, high;
};

template <class V>
Wide<V> interleave(typename V::T a, typename V::T b) {
  return {V::unpack_low16(a, b), V::unpack_high16(a, b)};
}

// sum + in * factors.
template <class V>
Wide<V> madd(Wide<V> sum, Wide<V> in, int32_t factors) {
  const auto k = V::set32(factors);
  return {V::madd(sum.low, in.low, k), V::madd(sum.high, in.high, k)};
}

template <class V>
Wide<V> product(Wide<V> in, int32_t factors) {
  const auto k = V::set32(factors);
  return {V::mul_pairs(in.low, k), V::mul_pairs(in.high, k)};
}

// (a + b) >> shift and (a - b) >> shift, saturated to 16 bits; the rounding is in `a` already.
template <class V, int kShift>
void butterfly(Wide<V> a, Wide<V> b, typename V::T& sum, typename V::T& difference) {
  sum = V::pack32(V::template shift32<kShift>(V::add32(a.low, b.low)),
                  V::template shift32<kShift>(V::add32(a.high, b.high)));
  difference = V::pack32(V::template shift32<kShift>(V::sub32(a.low, b.low)),
                         V::template shift32<kShift>(V::sub32(a.high, b.high)));
}

// One pass over x[0..8), as transform8() in idct.cpp.
template <class V, int kShift>
void pass(typename V::T* x) {
  const auto zero = V::zero();
  const auto rounding = V::set32(1 << (kShift - 1));
  const Wide<V> start{rounding, rounding};
  const Wide<V> even0 =
      madd<V>(start, interleave<V>(V::add16(x[0], x[4]), zero), idct_pair(8192, 0));
  const Wide<V> even1 =
      madd<V>(start, interleave<V>(V::sub16(x[0], x[4]), zero), idct_pair(8192, 0));
  const Wide<V> in26 = interleave<V>(x[2], x[6]);
  const Wide<V> sum0 = madd<V>(even0, in26, idct_pair(10703, 4433));
  const Wide<V> sum3 = madd<V>(even0, in26, idct_pair(-10703, -4433));
  const Wide<V> sum1 = madd<V>(even1, in26, idct_pair(4433, -10704));
  const Wide<V> sum2 = madd<V>(even1, in26, idct_pair(-4433, 10704));

  const Wide<V> z = interleave<V>(V::add16(x[3], x[7]), V::add16(x[1], x[5]));
  const Wide<V> odd_a = product<V>(z, idct_pair(-6436, 9633));
  const Wide<V> odd_b = product<V>(z, idct_pair(9633, 6437));
  const Wide<V> in71 = interleave<V>(x[7], x[1]);
  const Wide<V> in53 = interleave<V>(x[5], x[3]);
  butterfly<V, kShift>(sum0, madd<V>(odd_b, in71, idct_pair(-7373, 4926)), x[0], x[7]);
  butterfly<V, kShift>(sum1, madd<V>(odd_a, in53, idct_pair(-20995, 4177)), x[1], x[6]);
  butterfly<V, kShift>(sum2, madd<V>(odd_b, in53, idct_pair(-4176, -20995)), x[2], x[5]);
  butterfly<V, kShift>(sum3, madd<V>(odd_a, in71, idct_pair(-4927, -7373)), x[3], x[4]);
}

template <class V>
void transpose(typename V::T* x) {
  using T = typename V::T;
  const T a0 = V::unpack_low16(x[0], x[1]), a1 = V::unpack_high16(x[0], x[1]);
  const T a2 = V::unpack_low16(x[2], x[3]), a3 = V::unpack_high16(x[2], x[3]);
  const T a4 = V::unpack_low16(x[4], x[5]), a5 = V::unpack_high16(x[4], x[5]);
  const T a6 = V::unpack_low16(x[6], x[7]), a7 = V::unpack_high16(x[6], x[7]);
  const T b0 = V::unpack_low32(a0, a2), b1 = V::unpack_high32(a0, a2);
  const T b2 = V::unpack_low32(a4, a6), b3 = V::unpack_high32(a4, a6);
  const T b4 = V::unpack_low32(a1, a3), b5 = V::unpack_high32(a1, a3);
  const T b6 = V::unpack_low32(a5, a7), b7 = V::unpack_high32(a5, a7);
  x[0] = V::unpack_low64(b0, b2), x[1] = V::unpack_high64(b0, b2);
  x[2] = V::unpack_low64(b1, b3), x[3] = V::unpack_high64(b1, b3);
  x[4] = V::unpack_low64(b4, b6), x[5] = V::unpack_high64(b4, b6);
  x[6] = V::unpack_low64(b5, b7), x[7] = V::unpack_high64(b5, b7);
}

// Columns of 16-bit values to rows of samples, written to out.
template <class V>
void store_samples(const typename V::T* x, uint8_t* out, size_t stride) {
  using T = typename V::T;
  const T middle = V::set8(-128);
  const T p0 = V::xor_bits(V::pack16(x[0], x[4]), middle),
          p1 = V::xor_bits(V::pack16(x[1], x[5]), middle);
  const T p2 = V::xor_bits(V::pack16(x[2], x[6]), middle),
          p3 = V::xor_bits(V::pack16(x[3], x[7]), middle);
  const T a0 = V::unpack_low8(p0, p1), a1 = V::unpack_high8(p0, p1);
  const T a2 = V::unpack_low8(p2, p3), a3 = V::unpack_high8(p2, p3);
  const T b0 = V::unpack_low16(a0, a2), b1 = V::unpack_high16(a0, a2);
  const T b2 = V::unpack_low16(a1, a3), b3 = V::unpack_high16(a1, a3);
  V::store_row_pair(V::unpack_low32(b0, b2), out, out + stride);
  V::store_row_pair(V::unpack_high32(b0, b2), out + 2 * stride, out + 3 * stride);
  V::store_row_pair(V::unpack_low32(b1, b3), out + 4 * stride, out + 5 * stride);
  V::store_row_pair(V::unpack_high32(b1, b3), out + 6 * stride, out + 7 * stride);
}

// The dequantised rows of a group to samples. `flat`: blocks whose rows below the first are zero
// take libjpeg-turbo's short cut, which differs from the transform where 16 bits overflow.
template <class V>
void transform_dequantised(typename V::T* x, typename V::Lanes flat, uint8_t* out, size_t stride) {
  const auto flat_value = V::template shift_left16<2>(x[0]);
  if (V::all(flat)) {
    for (int row = 0; row < 8; ++row) x[row] = flat_value;
  } else {
    pass<V, 11>(x);
    if (V::any(flat)) {
      for (int row = 0; row < 8; ++row) x[row] = V::select(flat, x[row], flat_value);
    }
  }
  transpose<V>(x);
  pass<V, 18>(x);
  store_samples<V>(x, out, stride);
}

// The rows of a group, not yet multiplied by the steps, to samples.
template <class V>
void transform_rows(typename V::T* x, const typename V::T* steps, uint8_t* out, size_t stride) {
  auto used = x[1];
  for (int row = 2; row < 8; ++row) used = V::or_bits(used, x[row]);
  for (int row = 0; row < 8; ++row) x[row] = V::mul16(x[row], steps[row]);
  transform_dequantised<V>(x, V::zero_lanes(used), out, stride);
}

template <class V>
void transform_group(int16_t* coefs, const typename V::T* steps, uint8_t* out, size_t stride) {
  typename V::T x[8];
  for (int row = 0; row < 8; ++row) {
    int16_t* const at = coefs + row * 8 * V::kBlocks;
    x[row] = V::load(at);
    V::store(at, V::zero());
  }
  transform_rows<V>(x, steps, out, stride);
}

template <class V>
void transform_groups(int16_t* coefs, const uint16_t* steps, uint8_t* out, size_t stride,
                      int count) {
  typename V::T step_rows[8];
  for (int row = 0; row < 8; ++row) step_rows[row] = V::repeat_lane(steps + row * 8);
  for (int block = 0; block < count; block += V::kBlocks) {
    transform_group<V>(coefs, step_rows, out, stride);
    coefs += V::kBlocks * 64;
    out += V::kBlocks * 8;
  }
}

}  // namespace
}  // namespace fastload
