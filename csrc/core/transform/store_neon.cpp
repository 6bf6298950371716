// Store with NEON: product and sum rounded apart, as in store_scalar.cpp, so that the bits agree.
#include "transform/store_kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>

namespace fastload {
namespace {

constexpr size_t kPixels = 16;  // of one step; kScalarStore does the rest of a line

struct Float32 {
  using Element = float;
  static constexpr DType kDType = DType::kFloat32;
  static void store(Element* to, float32x4_t value) { vst1q_f32(to, value); }
};

struct Float16 {
  using Element = uint16_t;
  static constexpr DType kDType = DType::kFloat16;
  static void store(Element* to, float32x4_t value) {  // rounds to nearest even (FPCR's default)
    vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32(value)));
  }
};

struct Bfloat16 {
  using Element = uint16_t;
  static constexpr DType kDType = DType::kBfloat16;
  static void store(Element* to, float32x4_t value) {
    const uint32x4_t bits = vreinterpretq_u32_f32(value);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    vst1_u16(to, vaddhn_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7FFF))));
  }
};

// 16 values; a and b point to the factors of the first four, `step` apart from the next four's.
template <typename Format>
void store16(uint8x16_t bytes, const float* a, const float* b, size_t step,
             typename Format::Element* to) {
  const uint16x8_t front = vmovl_u8(vget_low_u8(bytes)), back = vmovl_high_u8(bytes);
  const uint32x4_t wide[4] = {vmovl_u16(vget_low_u16(front)), vmovl_high_u16(front),
                              vmovl_u16(vget_low_u16(back)), vmovl_high_u16(back)};
  for (size_t i = 0; i < 4; ++i) {
    const float32x4_t x = vcvtq_f32_u32(wide[i]);
    const float32x4_t product = vmulq_f32(x, vld1q_f32(a + step * i));
    Format::store(to + 4 * i, vaddq_f32(product, vld1q_f32(b + step * i)));
  }
}

template <typename Format>
size_t interleaved(const uint8_t* in, size_t pixels, const StoreScale& scale,
                   typename Format::Element* to) {
  static_assert(StoreScale::kLength == 3 * kPixels);
  size_t i = 0;
  for (; i + kPixels <= pixels; i += kPixels) {
    for (size_t v = 0; v < 3 * kPixels; v += 16) {
      store16<Format>(vld1q_u8(in + 3 * i + v), scale.a.data() + v, scale.b.data() + v, 4,
                      to + 3 * i + v);
    }
  }
  return i;
}

template <typename Format>
size_t planar(const uint8_t* in, size_t pixels, const StoreScale& scale,
              typename Format::Element* to, size_t plane) {
  float a[3][4];
  float b[3][4];
  for (size_t c = 0; c < 3; ++c) {
    vst1q_f32(a[c], vdupq_n_f32(scale.a[c]));
    vst1q_f32(b[c], vdupq_n_f32(scale.b[c]));
  }
  size_t i = 0;
  for (; i + kPixels <= pixels; i += kPixels) {
    const uint8x16x3_t rgb = vld3q_u8(in + 3 * i);
    for (size_t c = 0; c < 3; ++c) store16<Format>(rgb.val[c], a[c], b[c], 0, to + c * plane + i);
  }
  return i;
}

template <typename Format>
void line(const uint8_t* in, size_t pixels, const StoreScale& scale, void* out, size_t plane) {
  auto* to = static_cast<typename Format::Element*>(out);
  const size_t done = plane == 0 ? interleaved<Format>(in, pixels, scale, to)
                                 : planar<Format>(in, pixels, scale, to, plane);
  const StoreLine rest = kScalarStore[static_cast<size_t>(Format::kDType)];
  rest(in + 3 * done, pixels - done, scale, to + (plane == 0 ? 3 * done : done), plane);
}

void line_uint8(const uint8_t* in, size_t pixels, const StoreScale& scale, void* out,
                size_t plane) {
  auto* to = static_cast<uint8_t*>(out);
  size_t i = 0;
  for (; plane > 0 && i + kPixels <= pixels; i += kPixels) {
    const uint8x16x3_t rgb = vld3q_u8(in + 3 * i);
    for (size_t c = 0; c < 3; ++c) vst1q_u8(to + c * plane + i, rgb.val[c]);
  }
  kScalarStore[static_cast<size_t>(DType::kUint8)](in + 3 * i, pixels - i, scale, to + i, plane);
}

}  // namespace

const StoreKernels kNeonStore{line_uint8, line<Float16>, line<Bfloat16>, line<Float32>};

}  // namespace fastload
#endif
