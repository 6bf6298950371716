// NEON's vector operations for store_simd.h.
#include "transform/store_kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include "transform/store_simd.h"

namespace fastload {
namespace {

struct Store16 {
  using Float = float32x4x4_t;
  static constexpr size_t kLanes = 16;
  static constexpr size_t kPixels = 16;
  static constexpr size_t kBytePixels = 16;
  static constexpr size_t kStreamed = 0;  // no such stores

  struct Float32 {
    using Element = float;
    static void store(Element* to, const Float& value) {
      for (size_t i = 0; i < 4; ++i) vst1q_f32(to + 4 * i, value.val[i]);
    }
  };
  struct Float16 {
    using Element = uint16_t;
    static void store(Element* to, const Float& value) {  // to nearest even (FPCR's default)
      for (size_t i = 0; i < 4; ++i) {
        vst1_u16(to + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(value.val[i])));
      }
    }
  };
  struct Bfloat16 {
    using Element = uint16_t;
    static void store(Element* to, const Float& value) {
      for (size_t i = 0; i < 4; ++i) {
        const uint32x4_t bits = vreinterpretq_u32_f32(value.val[i]);
        const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
        vst1_u16(to + 4 * i, vaddhn_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7FFF))));
      }
    }
  };

  static Float set(float value) {
    const float32x4_t v = vdupq_n_f32(value);
    return {{v, v, v, v}};
  }
  static Float load(const float* from) {
    return {{vld1q_f32(from), vld1q_f32(from + 4), vld1q_f32(from + 8), vld1q_f32(from + 12)}};
  }
  static Float to_floats(uint8x16_t bytes) {
    const uint16x8_t front = vmovl_u8(vget_low_u8(bytes)), back = vmovl_high_u8(bytes);
    return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(front))), vcvtq_f32_u32(vmovl_high_u16(front)),
             vcvtq_f32_u32(vmovl_u16(vget_low_u16(back))), vcvtq_f32_u32(vmovl_high_u16(back))}};
  }
  static Float widened(const uint8_t* in) { return to_floats(vld1q_u8(in)); }
  static Float scaled(const Float& x, const Float& a, const Float& b) {
    Float found;
    for (size_t i = 0; i < 4; ++i) {
      found.val[i] = vaddq_f32(vmulq_f32(x.val[i], a.val[i]), b.val[i]);
    }
    return found;
  }

  static uint8x16x3_t channels(const uint8_t* in) { return vld3q_u8(in); }
  static Float channel(const uint8x16x3_t& pixels, size_t c) { return to_floats(pixels.val[c]); }

  static void split_bytes(const uint8_t* in, uint8_t* to, size_t plane) {
    const uint8x16x3_t rgb = vld3q_u8(in);
    for (size_t c = 0; c < 3; ++c) vst1q_u8(to + c * plane, rgb.val[c]);
  }
};

}  // namespace

const StoreKernels kNeonStore = store_lines<Store16>();

}  // namespace fastload
#endif
