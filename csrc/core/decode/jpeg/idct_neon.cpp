// The inverse DCT with NEON: transform8() of idct.cpp, where the constants come from, on eight
// columns at a time. A vector is one row of a block, and after the transposition one column.
#if defined(__aarch64__)

#include <arm_neon.h>

#include "decode/jpeg/idct.h"

namespace fastload {
namespace {

// Sums and products that wrap. Unsigned, because GCC makes + and * of the signed ones' intrinsics,
// whose overflow is undefined.
uint16x8_t bits(int16x8_t v) { return vreinterpretq_u16_s16(v); }
uint32x4_t bits(int32x4_t v) { return vreinterpretq_u32_s32(v); }
int16x8_t add(int16x8_t a, int16x8_t b) {
  return vreinterpretq_s16_u16(vaddq_u16(bits(a), bits(b)));
}
int16x8_t subtract(int16x8_t a, int16x8_t b) {
  return vreinterpretq_s16_u16(vsubq_u16(bits(a), bits(b)));
}
int32x4_t add(int32x4_t a, int32x4_t b) {
  return vreinterpretq_s32_u32(vaddq_u32(bits(a), bits(b)));
}
int32x4_t subtract(int32x4_t a, int32x4_t b) {
  return vreinterpretq_s32_u32(vsubq_u32(bits(a), bits(b)));
}

// Eight 32-bit sums.
struct Wide {
  int32x4_t low, high;
};

Wide add(Wide a, Wide b) { return {add(a.low, b.low), add(a.high, b.high)}; }
Wide subtract(Wide a, Wide b) { return {subtract(a.low, b.low), subtract(a.high, b.high)}; }

// sum + a * x + b * y, modulo 2^32.
Wide madd(Wide sum, int16x8_t x, int16_t a, int16x8_t y, int16_t b) {
  const int32x4_t low = vmlal_n_s16(sum.low, vget_low_s16(x), a);
  const int32x4_t high = vmlal_high_n_s16(sum.high, x, a);
  return {vmlal_n_s16(low, vget_low_s16(y), b), vmlal_high_n_s16(high, y, b)};
}

Wide product(int16x8_t x, int16_t a, int16x8_t y, int16_t b) {
  const int32x4_t zero = vdupq_n_s32(0);
  return madd({zero, zero}, x, a, y, b);
}

// value >> shift, saturated to 16 bits; the rounding is in the value already.
template <int kShift>
int16x8_t descale(Wide value) {
  if constexpr (kShift <= 16) {
    return vqshrn_high_n_s32(vqshrn_n_s32(value.low, kShift), value.high, kShift);
  } else {  // no 16-bit value is exceeded
    const int16x8_t upper = vshrn_high_n_s32(vshrn_n_s32(value.low, 16), value.high, 16);
    return vshrq_n_s16(upper, kShift - 16);
  }
}

template <int kShift>
void butterfly(Wide a, Wide b, int16x8_t& sum, int16x8_t& difference) {
  sum = descale<kShift>(add(a, b));
  difference = descale<kShift>(subtract(a, b));
}

// One pass over x[0..8), as transform8() in idct.cpp.
template <int kShift>
void pass(int16x8_t* x) {
  const Wide half{vdupq_n_s32(1 << (kShift - 1)), vdupq_n_s32(1 << (kShift - 1))};
  const auto scaled = [&](int16x8_t v) {
    return add(half, Wide{vshll_n_s16(vget_low_s16(v), 13), vshll_high_n_s16(v, 13)});
  };
  const Wide even0 = scaled(add(x[0], x[4]));
  const Wide even1 = scaled(subtract(x[0], x[4]));
  const Wide even2 = product(x[2], 4433, x[6], -10704);
  const Wide even3 = product(x[2], 10703, x[6], 4433);

  const int16x8_t z3 = add(x[3], x[7]), z4 = add(x[1], x[5]);
  const Wide odd_a = product(z3, -6436, z4, 9633);
  const Wide odd_b = product(z3, 9633, z4, 6437);
  const Wide odd0 = madd(odd_a, x[7], -4927, x[1], -7373);
  const Wide odd1 = madd(odd_b, x[5], -4176, x[3], -20995);
  const Wide odd2 = madd(odd_a, x[5], -20995, x[3], 4177);
  const Wide odd3 = madd(odd_b, x[7], -7373, x[1], 4926);

  butterfly<kShift>(add(even0, even3), odd3, x[0], x[7]);
  butterfly<kShift>(add(even1, even2), odd2, x[1], x[6]);
  butterfly<kShift>(subtract(even1, even2), odd1, x[2], x[5]);
  butterfly<kShift>(subtract(even0, even3), odd0, x[3], x[4]);
}

int32x4_t as32(int16x8_t v) { return vreinterpretq_s32_s16(v); }
int16x8_t low64(int32x4_t a, int32x4_t b) {
  return vreinterpretq_s16_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}
int16x8_t high64(int32x4_t a, int32x4_t b) {
  return vreinterpretq_s16_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}

// Four rows of eight, given in their natural order, to four vectors of two half columns each:
// [i] holds columns 2 i and 2 i + 1.
struct HalfColumns {
  int32x4_t pair[4];
};

HalfColumns half_columns(const int16x8_t* x) {
  const int32x4_t a0 = as32(vzip1q_s16(x[0], x[1])), a1 = as32(vzip2q_s16(x[0], x[1]));
  const int32x4_t a2 = as32(vzip1q_s16(x[2], x[3])), a3 = as32(vzip2q_s16(x[2], x[3]));
  return {{vzip1q_s32(a0, a2), vzip2q_s32(a0, a2), vzip1q_s32(a1, a3), vzip2q_s32(a1, a3)}};
}

void transpose(int16x8_t* x) {
  const HalfColumns top = half_columns(x), bottom = half_columns(x + 4);
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = low64(top.pair[i], bottom.pair[i]);
    x[2 * i + 1] = high64(top.pair[i], bottom.pair[i]);
  }
}

// Columns of 16-bit values to rows of samples, written to out.
void store_samples(const int16x8_t* x, uint8_t* out, size_t stride) {
  uint8x16_t columns[4];  // i and i + 4
  for (int i = 0; i < 4; ++i) {
    const int8x16_t both = vqmovn_high_s16(vqmovn_s16(x[i]), x[i + 4]);
    columns[i] = veorq_u8(vreinterpretq_u8_s8(both), vdupq_n_u8(0x80));
  }
  const auto as16 = [](uint8x16_t v) { return vreinterpretq_u16_u8(v); };
  const uint16x8_t c01 = as16(vzip1q_u8(columns[0], columns[1]));
  const uint16x8_t c45 = as16(vzip2q_u8(columns[0], columns[1]));
  const uint16x8_t c23 = as16(vzip1q_u8(columns[2], columns[3]));
  const uint16x8_t c67 = as16(vzip2q_u8(columns[2], columns[3]));
  const auto store_rows = [&](uint16x8_t left, uint16x8_t right) {  // four rows
    const uint32x4_t l = vreinterpretq_u32_u16(left), r = vreinterpretq_u32_u16(right);
    for (const uint32x4_t rows : {vzip1q_u32(l, r), vzip2q_u32(l, r)}) {
      vst1_u8(out, vget_low_u8(vreinterpretq_u8_u32(rows)));
      vst1_u8(out + stride, vget_high_u8(vreinterpretq_u8_u32(rows)));
      out += 2 * stride;
    }
  };
  store_rows(vzip1q_u16(c01, c23), vzip1q_u16(c45, c67));
  store_rows(vzip2q_u16(c01, c23), vzip2q_u16(c45, c67));
}

void transform_block(int16_t* coefs, const uint16x8_t* steps, uint8_t* out, size_t stride) {
  int16x8_t x[8];
  int16x8_t used = vdupq_n_s16(0);
  for (int row = 0; row < 8; ++row) {
    x[row] = vld1q_s16(coefs + 8 * row);
    vst1q_s16(coefs + 8 * row, vdupq_n_s16(0));
    if (row > 0) used = vorrq_s16(used, x[row]);
    x[row] = vreinterpretq_s16_u16(vmulq_u16(bits(x[row]), steps[row]));
  }
  // libjpeg-turbo's short cut for blocks whose rows below the first are zero; it differs from the
  // transform where 16 bits overflow.
  if (vmaxvq_u16(vreinterpretq_u16_s16(used)) == 0) {
    const int16x8_t flat = vshlq_n_s16(x[0], 2);
    for (int16x8_t& row : x) row = flat;
  } else {
    pass<11>(x);
  }
  transpose(x);
  pass<18>(x);
  store_samples(x, out, stride);
}

}  // namespace

void idct_neon(int16_t* coefs, const uint16_t* steps, uint8_t* out, size_t stride, int count) {
  uint16x8_t step_rows[8];
  for (int row = 0; row < 8; ++row) step_rows[row] = vld1q_u16(steps + 8 * row);
  for (int block = 0; block < count; ++block) {
    transform_block(coefs + 64 * block, step_rows, out + 8 * block, stride);
  }
}

}  // namespace fastload

#endif
