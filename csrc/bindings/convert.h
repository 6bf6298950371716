// Argument types shared by the binding files.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "base/bytes.h"

namespace fastload::bindings {

// A contiguous one-dimensional uint8 array (np.frombuffer(data, np.uint8)), borrowed for the call.
using BytesArg = nanobind::ndarray<const uint8_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

inline Bytes as_bytes(const BytesArg& array) { return {array.data(), array.size()}; }

}  // namespace fastload::bindings
