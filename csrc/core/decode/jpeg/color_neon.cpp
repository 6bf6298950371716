// Upsampling and colour with NEON; the formulas are those of color.cpp.
#if defined(__aarch64__)

#include <arm_neon.h>

#include "decode/jpeg/color.h"

namespace fastload {
namespace {

constexpr int kLanes = 8;  // samples of one step of upsampling

// 3 * a + b.
uint16x8_t three_to_one(const uint8_t* a, const uint8_t* b) {
  return vaddw_u8(vmull_u8(vld1_u8(a), vdup_n_u8(3)), vld1_u8(b));
}

void h2v1(const uint8_t* in, uint8_t* out, int count) {
  for (int i = 0; i < count; i += kLanes) {
    const uint16x8_t left = vaddq_u16(three_to_one(in + i, in + i - 1), vdupq_n_u16(1));
    const uint16x8_t right = three_to_one(in + i, in + i + 1);
    const uint8x8x2_t pairs = {{vshrn_n_u16(left, 2), vrshrn_n_u16(right, 2)}};
    vst2_u8(out + 2 * i, pairs);
  }
}

void h2v2(const uint8_t* near, const uint8_t* far, uint8_t* out, int count) {
  for (int i = 0; i < count; i += kLanes) {
    const auto column = [=](int at) { return three_to_one(near + at, far + at); };
    const uint16x8_t here = vmulq_n_u16(column(i), 3);
    const uint16x8_t left = vaddq_u16(here, column(i - 1));
    const uint16x8_t right = vaddq_u16(vaddq_u16(here, column(i + 1)), vdupq_n_u16(7));
    const uint8x8x2_t pairs = {{vrshrn_n_u16(left, 4), vshrn_n_u16(right, 4)}};
    vst2_u8(out + 2 * i, pairs);
  }
}

void h1v2(const uint8_t* near, const uint8_t* far, int bias, uint8_t* out, int count) {
  const uint16x8_t rounding = vdupq_n_u16(static_cast<uint16_t>(bias));
  for (int i = 0; i < count; i += kLanes) {
    vst1_u8(out + i, vshrn_n_u16(vaddq_u16(three_to_one(near + i, far + i), rounding), 2));
  }
}

struct Rgb8 {
  uint8x8_t r, g, b;
};

// As convert_half() in color_simd.h, which explains the factors; the rounding multiply takes
// (2 a b + 2^15) >> 16.
Rgb8 convert(uint8x8_t luma, uint8x8_t cb, uint8x8_t cr) {
  const uint8x8_t middle = vdup_n_u8(128);
  const int16x8_t y = vreinterpretq_s16_u16(vmovl_u8(luma));
  const int16x8_t u = vreinterpretq_s16_u16(vsubl_u8(cb, middle));
  const int16x8_t v = vreinterpretq_s16_u16(vsubl_u8(cr, middle));
  const int16x8_t r = vaddq_s16(vaddq_s16(y, v), vqrdmulhq_n_s16(v, 13173));
  const int16x8_t b =
      vaddq_s16(vaddq_s16(y, vaddq_s16(u, u)), vqrdmulhq_n_s16(u, static_cast<int16_t>(-7471)));
  const int32x4_t low = vmlal_n_s16(vmull_n_s16(vget_low_s16(u), -22554), vget_low_s16(v), 18734);
  const int32x4_t high = vmlal_high_n_s16(vmull_high_n_s16(u, -22554), v, 18734);
  const int16x8_t mixed = vrshrn_high_n_s32(vrshrn_n_s32(low, 16), high, 16);
  const int16x8_t g = vaddq_s16(vsubq_s16(y, v), mixed);
  return {vqmovun_s16(r), vqmovun_s16(g), vqmovun_s16(b)};
}

void ycc_to_rgb(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, uint8_t* rgb, int count) {
  for (int i = 0; i < count; i += 16) {
    const uint8x16_t yy = vld1q_u8(y + i), uu = vld1q_u8(cb + i), vv = vld1q_u8(cr + i);
    const Rgb8 low = convert(vget_low_u8(yy), vget_low_u8(uu), vget_low_u8(vv));
    const Rgb8 high = convert(vget_high_u8(yy), vget_high_u8(uu), vget_high_u8(vv));
    const uint8x16x3_t pixels = {
        {vcombine_u8(low.r, high.r), vcombine_u8(low.g, high.g), vcombine_u8(low.b, high.b)}};
    vst3q_u8(rgb + 3 * i, pixels);
  }
}

void gray_to_rgb(const uint8_t* y, uint8_t* rgb, int count) {
  for (int i = 0; i < count; i += 16) {
    const uint8x16_t value = vld1q_u8(y + i);
    const uint8x16x3_t pixels = {{value, value, value}};
    vst3q_u8(rgb + 3 * i, pixels);
  }
}

}  // namespace

const ColorKernels kColorNeon{h2v1, h2v2, h1v2, ycc_to_rgb, gray_to_rgb};

}  // namespace fastload

#endif
