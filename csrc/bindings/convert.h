// Arguments and owners shared by the binding files.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>

#include "base/bytes.h"

namespace fastload::bindings {

// A contiguous one-dimensional uint8 array (np.frombuffer(data, np.uint8)), borrowed for the call.
using BytesArg =
    nanobind::ndarray<const uint8_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

inline Bytes as_bytes(const BytesArg& array) { return {array.data(), array.size()}; }

// A reference that is released on whichever thread drops the last copy. At interpreter exit it is
// leaked. To be made with the GIL held.
inline std::shared_ptr<PyObject> shared_owner(nanobind::object object) {
  return {object.release().ptr(), [](PyObject* owned) {
            if (!nanobind::is_alive()) return;
            const nanobind::gil_scoped_acquire gil;
            Py_DECREF(owned);
          }};
}

}  // namespace fastload::bindings
