#include "transform/pixels/pointwise.h"

namespace fastload {

const LumaWeights kLumaWeights{{19595 >> 8, 38470 >> 8, 7471 >> 8},
                               {19595 & 255, 38470 & 255, 7471 & 255}};

const PointKernels& point_kernels(SimdLevel level) {
#if defined(__x86_64__)
  if (level == SimdLevel::kAvx512) return kPointKernelsAvx512;
  if (level == SimdLevel::kAvx2) return kPointKernelsAvx2;
#elif defined(__aarch64__)
  if (level == SimdLevel::kNeon) return kPointKernelsNeon;
#endif
  (void)level;
  return kPointKernelsScalar;
}

}  // namespace fastload
