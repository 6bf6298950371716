#if defined(__x86_64__)

#include "transcode/coding_kernels_loop.h"

namespace fastload {

constinit const CodingKernels kCodingAvx2{count_by_value, nothing_pends, choose_lists,
                                          choose_lengths};

}  // namespace fastload

#endif
