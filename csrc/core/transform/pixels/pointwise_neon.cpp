// NEON's vector operations for pointwise_simd.h.
#include "transform/pixels/pointwise.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include "transform/pixels/pointwise_simd.h"

namespace fastload {
namespace {

struct Points16 {
  static constexpr size_t kPixels = 16;

  class Table {
   public:
    explicit Table(const uint8_t* from) {
      for (size_t i = 0; i < 4; ++i) part_[i] = vld1q_u8_x4(from + 64 * i);
    }
    // An index that a part does not have gives 0, or leaves what is there.
    void apply(uint8_t* bytes) const {
      const uint8x16_t x = vld1q_u8(bytes);
      uint8x16_t found = vqtbl4q_u8(part_[0], x);
      for (int i = 1; i < 4; ++i) {
        const uint8x16_t at = vsubq_u8(x, vdupq_n_u8(static_cast<uint8_t>(64 * i)));
        found = vqtbx4q_u8(found, part_[i], at);
      }
      vst1q_u8(bytes, found);
    }

   private:
    uint8x16x4_t part_[4];
  };

  class Blend {
   public:
    explicit Blend(float factor) : factor_(factor) {}
    void apply(const uint8_t* from, const uint8_t* to, uint8_t* out) const {
      for (size_t i = 0; i < kPixels; ++i) out[i] = blended(from[i], to[i], factor_);
    }

   private:
    float factor_;
  };

  static void split(const uint8_t* rgb, uint8_t* r, uint8_t* g, uint8_t* b) {
    const uint8x16x3_t planes = vld3q_u8(rgb);
    vst1q_u8(r, planes.val[0]);
    vst1q_u8(g, planes.val[1]);
    vst1q_u8(b, planes.val[2]);
  }

  static void join(const uint8_t* r, const uint8_t* g, const uint8_t* b, uint8_t* rgb) {
    vst3q_u8(rgb, uint8x16x3_t{{vld1q_u8(r), vld1q_u8(g), vld1q_u8(b)}});
  }
};

}  // namespace

constinit const PointKernels kPointKernelsNeon = kernels_of<Points16>();

}  // namespace fastload
#endif
