#include "transform/pixels/pointwise.h"

namespace fastload {

const PointKernels& point_kernels(SimdLevel level) {
  (void)level;
  return kPointKernelsScalar;
}

}  // namespace fastload
