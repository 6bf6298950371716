#include "transform/store_kernels.h"
#if defined(__x86_64__)
namespace fastload {
const StoreKernels kAvx2Store = kScalarStore;
}
#endif
