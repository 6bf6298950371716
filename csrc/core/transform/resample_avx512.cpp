#include "transform/kernels.h"
#if defined(__x86_64__)
namespace fastload {
const ResampleKernels kAvx512Resample = kScalarResample;
}
#endif
