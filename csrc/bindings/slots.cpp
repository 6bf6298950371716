// Memory of batches.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>

#include "collate/slot_pool.h"
#include "register.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

struct PySlotPool {
  std::shared_ptr<SlotPool> pool;
};

nb::ndarray<uint8_t, nb::numpy, nb::ndim<1>> lease(PySlotPool& self, size_t size) {
  std::unique_ptr<SlotPool::Lease> lease = self.pool->lease(size);
  uint8_t* data = lease->data();
  const nb::capsule owner(lease.release(),
                          [](void* p) noexcept { delete static_cast<SlotPool::Lease*>(p); });
  return {data, {size}, owner};
}

}  // namespace

void register_slots(nb::module_& m) {
  nb::class_<PySlotPool>(m, "SlotPool", "Memory of batches; see csrc/core/collate/slot_pool.h.")
      .def(
          "__init__",
          [](PySlotPool* self, size_t keep) { new (self) PySlotPool{SlotPool::make(keep)}; },
          nb::arg("keep"))
      .def("lease", &lease, nb::arg("size"),
           "(size,) uint8, contents undefined; given back when the last reference is gone.");
}

}  // namespace fastload::bindings
