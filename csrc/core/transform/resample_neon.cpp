// The resize with NEON: Pillow's integer sums as they are, in 32-bit lanes.
#include "transform/kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>

namespace fastload {
namespace {

constexpr int kChunk = 4;    // taps of one 16-byte load of RGB pixels
constexpr int kOutputs = 4;  // output pixels whose results are packed and stored together

// packed[j * taps + t]: an output pixel's weights side by side.
void pack_horizontal(Axis& axis) {
  axis.packed.reserve(static_cast<size_t>(axis.taps) * axis.stride);
  int32_t* to = axis.packed.data();
  for (int j = 0; j < axis.stride; ++j) {
    const int32_t* from = axis.weights.data() + j;
    for (int t = 0; t < axis.taps; ++t, from += axis.stride) *to++ = *from;
  }
}

void pack_nothing(Axis&) {}

// R, G, B and 0 of pixel `Pixel` of a load, in 32-bit lanes.
template <int Pixel>
int32x4_t pixel(uint8x16_t pixels) {
  constexpr uint8_t r = 3 * Pixel, g = r + 1, b = r + 2, none = 0xFF;
  const uint8x16_t index = {r, none, none, none, g,    none, none, none,
                            b, none, none, none, none, none, none, none};
  return vreinterpretq_s32_u8(vqtbl1q_u8(pixels, index));
}

// One output pixel: its sums of R, G and B.
int32x4_t output(const uint8_t* in, const int32_t* weights, int taps) {
  int32x4_t sum = vdupq_n_s32(kRounding);
  for (int t = 0; t < taps; t += kChunk) {
    const uint8x16_t pixels = vld1q_u8(in + 3 * t);
    const int32x4_t w = vld1q_s32(weights + t);
    sum = vmlaq_laneq_s32(sum, pixel<0>(pixels), w, 0);
    sum = vmlaq_laneq_s32(sum, pixel<1>(pixels), w, 1);
    sum = vmlaq_laneq_s32(sum, pixel<2>(pixels), w, 2);
    sum = vmlaq_laneq_s32(sum, pixel<3>(pixels), w, 3);
  }
  return sum;
}

// sums >> 22, clipped to bytes.
uint8x16_t bytes_of(const int32x4_t* sums) {
  static_assert(kPrecisionBits == 16 + 6);
  const int16x8_t front = vshrn_high_n_s32(vshrn_n_s32(sums[0], 16), sums[1], 16);
  const int16x8_t back = vshrn_high_n_s32(vshrn_n_s32(sums[2], 16), sums[3], 16);
  return vqshrun_high_n_s16(vqshrun_n_s16(front, 6), back, 6);
}

void line(const Axis& axis, const uint8_t* in, uint8_t* out) {
  const uint8x16_t drop_fourth = {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 15, 15, 15, 15};
  const int32_t* weights = axis.packed.data();
  for (int j = 0; j < axis.stride; j += kOutputs) {
    int32x4_t sums[kOutputs];
    for (int i = 0; i < kOutputs; ++i, weights += axis.taps) {
      sums[i] = output(in + 3 * static_cast<size_t>(axis.first[j + i]), weights, axis.taps);
    }
    vst1q_u8(out + 3 * static_cast<size_t>(j), vqtbl1q_u8(bytes_of(sums), drop_fourth));
  }
}

void horizontal(const Axis& axis, const uint8_t* const* in, uint8_t* const* out, int rows) {
  for (int i = 0; i < rows; ++i) line(axis, in[i], out[i]);
}

void vertical(const Axis& axis, int j, const uint8_t* const* in, size_t bytes, uint8_t* out) {
  for (size_t x = 0; x < bytes; x += 16) {
    int32x4_t sums[4];
    for (int32x4_t& sum : sums) sum = vdupq_n_s32(kRounding);
    const int32_t* weight = axis.weights.data() + j;
    for (int t = 0; t < axis.taps; ++t, weight += axis.stride) {
      const uint8x16_t samples = vld1q_u8(in[t] + x);
      const uint16x8_t front = vmovl_u8(vget_low_u8(samples)), back = vmovl_high_u8(samples);
      const uint32x4_t wide[4] = {vmovl_u16(vget_low_u16(front)), vmovl_high_u16(front),
                                  vmovl_u16(vget_low_u16(back)), vmovl_high_u16(back)};
      for (int i = 0; i < 4; ++i) {
        sums[i] = vmlaq_n_s32(sums[i], vreinterpretq_s32_u32(wide[i]), *weight);
      }
    }
    vst1q_u8(out + x, bytes_of(sums));
  }
}

}  // namespace

const ResampleKernels kNeonResample{kChunk,       1,          neon::fill_axis, pack_horizontal,
                                    pack_nothing, horizontal, vertical};

}  // namespace fastload
#endif
