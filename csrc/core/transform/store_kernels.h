// The inner loops of Store, once per SIMD level; all give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/kernels.h"
#include "transform/store.h"

namespace fastload {

// Converts `pixels` RGB pixels. `out` gets them interleaved, or, if plane > 0, channel c from out +
// c * plane elements on. Reads at most RowSink::kSlack bytes behind the pixels, writes only
// elements of this line.
using StoreLine = void (*)(const uint8_t* in, size_t pixels, const StoreScale& scale, void* out,
                           size_t plane);

// The kernel for a dtype, by DType's values.
using StoreKernels = std::array<StoreLine, 4>;

FASTLOAD_KERNEL(extern const StoreKernels kStore);

const StoreKernels& store_kernels(SimdLevel level);

}  // namespace fastload
