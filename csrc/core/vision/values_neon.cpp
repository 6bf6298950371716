// NEON's vector operations for values_simd.h.
#include "vision/values.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include "vision/values_simd.h"

namespace fastload {
namespace {

struct Values4 {
  using Float = float32x4_t;
  static constexpr size_t kLanes = 4;

  struct Float32 {
    using Element = float;
    static void store(Element* to, Float value) { vst1q_f32(to, value); }
    static void store_some(Element* to, Float value, size_t count) {
      Element all[kLanes];
      store(all, value);
      std::memcpy(to, all, count * sizeof(Element));
    }
  };
  struct Bfloat16 {
    using Element = uint16_t;
    static void store(Element* to, Float value) {
      const uint32x4_t bits = vreinterpretq_u32_f32(value);
      const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
      vst1_u16(to, vaddhn_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7FFF))));
    }
    static void store_some(Element* to, Float value, size_t count) {
      Element all[kLanes];
      store(all, value);
      std::memcpy(to, all, count * sizeof(Element));
    }
  };

  static Float load(const float* from) { return vld1q_f32(from); }
  static Float widened(const uint8_t* in) {
    uint32_t bytes;
    std::memcpy(&bytes, in, sizeof(bytes));
    const uint8x8_t four = vreinterpret_u8_u32(vdup_n_u32(bytes));
    return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(four))));
  }
  static Float sub(Float a, Float b) { return vsubq_f32(a, b); }
  static Float mul(Float a, Float b) { return vmulq_f32(a, b); }
  static Float fma(Float a, Float b, Float c) { return vfmaq_f32(c, a, b); }
  static Float rest(Float q, Float b, Float a) { return vfmsq_f32(a, q, b); }
};

}  // namespace

const ValueKernels kNeonValues{lines<Values4, Values4::Float32>, lines<Values4, Values4::Bfloat16>,
                               copy_bytes};

}  // namespace fastload
#endif
