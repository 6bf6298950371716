// The engine: submit, wait, collect.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <optional>

#include "collate/slot_pool.h"
#include "fallback.h"
#include "prefetch/engine.h"
#include "register.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

using ImagesArg = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using LabelsArg = nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using IdsArg = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using DrawsArg = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// nanobind holds the class itself, so the pointer that leaks after fork needs a class around it.
struct PyEngine {
  EnginePointer engine;
};

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

// References to the arrays whose memory a batch fills; given back under the GIL, on whatever
// thread.
struct SlotOwner {
  nb::object images, labels;
};

std::shared_ptr<void> own(nb::object images, nb::object labels) {
  return {new SlotOwner{std::move(images), std::move(labels)}, [](SlotOwner* owner) {
            nb::gil_scoped_acquire acquire;
            delete owner;
          }};
}

uint64_t submit(PyEngine& self, nb::object images, nb::object labels, const IdsArg& ids,
                const std::optional<DrawsArg>& draws, uint64_t epoch) {
  const auto image_array = nb::cast<ImagesArg>(images);
  const auto label_array = nb::cast<LabelsArg>(labels);
  BatchRequest request;
  request.images = {image_array.data(), image_array.size()};
  request.labels = {label_array.data(), label_array.size()};
  request.ids.assign(ids.data(), ids.data() + ids.size());
  if (draws) request.draws.assign(draws->data(), draws->data() + draws->size());
  request.epoch = epoch;
  request.owner = own(std::move(images), std::move(labels));
  return self.engine->submit(std::move(request));
}

nb::list collect(PyEngine& self, uint64_t ticket) {
  nb::list faults;
  for (const SampleFault& fault : self.engine->collect(ticket)) {
    // Messages may quote bytes of a damaged file.
    nb::object message = nb::steal(PyUnicode_DecodeUTF8(
        fault.message.data(), static_cast<Py_ssize_t>(fault.message.size()), "replace"));
    faults.append(
        nb::make_tuple(fault.position, fault.sample, static_cast<int>(fault.kind), message));
  }
  return faults;
}

nb::dict thread_stats(const ThreadStats& stats) {
  static constexpr const char* kStageNames[kStages] = {"shard", "decode", "transform", "idle"};
  static constexpr const char* kPathNames[kPaths] = {"jpeg", "jpeg_turbo", "png",     "webp",
                                                     "raw",  "pil",        "warnings"};
  nb::dict seconds, paths, result;
  for (size_t i = 0; i < kStages; ++i)
    seconds[kStageNames[i]] = 1e-9 * static_cast<double>(stats.nanoseconds[i].load());
  for (size_t i = 0; i < kPaths; ++i) paths[kPathNames[i]] = stats.records[i].load();
  result["seconds"] = seconds;
  result["decoded"] = paths;
  result["samples"] = stats.samples.load();
  result["bytes"] = stats.bytes.load();
  result["faults"] = stats.faults.load();
  return result;
}

}  // namespace

void register_prefetch(nb::module_& m) {
  m.attr("IGNORE_LABEL") = kIgnoreLabel;
  nb::class_<PySlotPool>(m, "SlotPool", "Memory of batches; see csrc/core/collate/slot_pool.h.")
      .def(
          "__init__",
          [](PySlotPool* self, size_t keep) { new (self) PySlotPool{SlotPool::make(keep)}; },
          nb::arg("keep"))
      .def("lease", &lease, nb::arg("size"),
           "(size,) uint8, contents undefined; given back when the last reference is gone.");
  nb::class_<PyEngine>(m, "Engine",
                       "Decoding threads that fill batches; see csrc/core/prefetch/engine.h.")
      .def(
          "__init__",
          [](PyEngine* self, Reader& reader, const GeometrySpec& geometry, const StoreSpec& store,
             int out_height, int out_width, uint64_t seed, int threads, uint64_t max_pixels,
             nb::object fallback, Entries* entries) {
            SamplePlan plan{geometry, store, out_width, out_height, seed, {}, entries};
            plan.limits.max_pixels = max_pixels;
            new (self)
                PyEngine{make_engine(reader, plan, threads, make_fallback(std::move(fallback)))};
          },
          nb::arg("reader"), nb::arg("geometry"), nb::arg("store"), nb::arg("out_height"),
          nb::arg("out_width"), nb::arg("seed"), nb::arg("threads"), nb::arg("max_pixels"),
          nb::arg("fallback").none(), nb::arg("entries").none() = nb::none(),
          nb::keep_alive<1, 2>(), nb::keep_alive<1, 11>())
      .def("submit", &submit, nb::arg("images"), nb::arg("labels"), nb::arg("ids"),
           nb::arg("draws").none(), nb::arg("epoch"),
           "Queues a batch: images (n * sample_bytes,) uint8 and labels (n,) int64 are filled, ids "
           "(n,) "
           "int64 are sample ids (-1: padding), draws (n,) uint32 or None. Returns its ticket.")
      .def(
          "wait",
          [](PyEngine& self, uint64_t ticket, double seconds) {
            return self.engine->wait(ticket, seconds);
          },
          nb::arg("ticket"), nb::arg("seconds"), nb::call_guard<nb::gil_scoped_release>(),
          "True once the batch is complete.")
      .def("collect", &collect, nb::arg("ticket"),
           "Takes a complete batch; its faults as (position, sample id, error kind, message).")
      .def(
          "cancel", [](PyEngine& self, uint64_t ticket) { self.engine->cancel(ticket); },
          nb::arg("ticket"), nb::call_guard<nb::gil_scoped_release>(),
          "Drops a batch; its memory is free afterwards.")
      .def(
          "close", [](PyEngine& self) { self.engine->close(); },
          nb::call_guard<nb::gil_scoped_release>(), "Ends the threads.")
      .def_prop_ro("threads", [](const PyEngine& self) { return self.engine->threads(); })
      .def_prop_ro("sample_bytes",
                   [](const PyEngine& self) { return self.engine->plan().sample_bytes(); })
      .def(
          "stats",
          [](const PyEngine& self) {
            nb::list all;
            for (int i = 0; i < self.engine->threads(); ++i)
              all.append(thread_stats(self.engine->thread_stats(i)));
            return all;
          },
          "A dict for each thread: seconds by stage, records by decoding path, samples, bytes, "
          "faults.");
}

}  // namespace fastload::bindings
