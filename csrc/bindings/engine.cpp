// The engine: submit, wait, collect.
#include "engine/engine.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>

#include "fallback.h"
#include "register.h"
#include "sources.h"

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
  nb::object sources;  // keeps the readers and caches alive

  // A closed engine reads no more: its caches are let go. Not where one of its own threads closes
  // it, which is in the middle of a record.
  void close() {
    const bool working = Pool::is_working_for(*engine);
    {
      const nb::gil_scoped_release release;
      engine->close();
    }
    if (!working) sources.reset();
  }

  // A thread that is waited for may need the GIL for a decoder written in Python.
  ~PyEngine() {
    if (engine && Pool::is_working_for(*engine)) sources.release();  // the engine is leaked, too
    const nb::gil_scoped_release release;
    engine.reset();
  }
};

struct PyAnnounced {
  std::shared_ptr<void> group;
};

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
                const std::optional<DrawsArg>& draws, uint64_t epoch,
                const PyAnnounced* announced) {
  const auto image_array = nb::cast<ImagesArg>(images);
  const auto label_array = nb::cast<LabelsArg>(labels);
  BatchRequest request;
  request.images = {image_array.data(), image_array.size()};
  request.labels = {label_array.data(), label_array.size()};
  request.ids.assign(ids.data(), ids.data() + ids.size());
  if (draws) request.draws.assign(draws->data(), draws->data() + draws->size());
  request.epoch = epoch;
  if (announced != nullptr) request.ahead = announced->group;
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

nb::dict thread_stats(PyEngine& self, int seat) {
  const ThreadStats& stats = self.engine->thread_stats(seat);
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
  result["in_use"] = seat < self.engine->threads();
  return result;
}

}  // namespace

void register_engine(nb::module_& m) {
  m.attr("IGNORE_LABEL") = kIgnoreLabel;
  m.attr("UNBOUNDED") = kUnbounded;
  nb::class_<PyAnnounced>(m, "Announced", "A batch whose records are read ahead.");
  nb::class_<PyEngine>(m, "Engine",
                       "Decoding threads that fill batches; see csrc/core/engine/engine.h.")
      .def(
          "__init__",
          [](PyEngine* self, const nb::sequence& sources, const GeometrySpec& geometry,
             const StoreSpec& store, int out_height, int out_width, uint64_t seed, int threads,
             uint64_t max_pixels, nb::object fallback, int most_threads, std::vector<int> cpus,
             uint64_t read_ahead, double keep, uint32_t decoded_side, const nb::sequence& pixels,
             const PixelSpec& operations) {
            SamplePlan plan{geometry, store, out_width, out_height,
                            seed,     {},    decoded_side, operations};
            plan.limits.max_pixels = max_pixels;
            new (self) PyEngine{make_engine(read_sources(sources, pixels, decoded_side), plan,
                                            {threads, most_threads, std::move(cpus)},
                                            make_fallback(std::move(fallback)), {read_ahead, keep}),
                                nb::make_tuple(nb::list(sources), nb::list(pixels))};
          },
          nb::arg("sources"), nb::arg("geometry"), nb::arg("store"), nb::arg("out_height"),
          nb::arg("out_width"), nb::arg("seed"), nb::arg("threads"), nb::arg("max_pixels"),
          nb::arg("fallback").none(), nb::arg("most_threads") = 0,
          nb::arg("cpus") = std::vector<int>{}, nb::arg("read_ahead") = 0, nb::arg("keep") = 1.0,
          nb::arg("decoded_side") = 0, nb::arg("pixels") = nb::tuple(),
          nb::arg("operations") = PixelSpec{},
          "sources: [(Reader, Entries or None, labels)], labels: what stands for each label of the "
          "source, [] for the same. threads: at once, of the process's pool; set_threads() goes up "
          "to most_threads. cpus: where the pool's threads run from now on, [] for anywhere. "
          "read_ahead: "
          "bytes of buffers, 0 for none. keep: share of the set that stays in the page cache once "
          "read. decoded_side: crops are cut from the picture scaled to this longest side; 0 for "
          "as it is, UNBOUNDED for no scaling. pixels: a CacheFile of that tier, or None, for each "
          "source. operations: on the pixels, between resize and store.")
      .def("submit", &submit, nb::arg("images"), nb::arg("labels"), nb::arg("ids"),
           nb::arg("draws").none(), nb::arg("epoch"), nb::arg("announced").none() = nb::none(),
           "Queues a batch: images (n * sample_bytes,) uint8 and labels (n,) int64 are filled, ids "
           "(n,) "
           "int64 are sample ids (-1: padding), draws (n,) uint32 or None. announced: what "
           "announce() returned for them. Returns its ticket.")
      .def(
          "announce",
          [](PyEngine& self, const IdsArg& ids) {
            return PyAnnounced{self.engine->announce({ids.data(), ids.data() + ids.size()})};
          },
          nb::arg("ids"),
          "Has the records of a batch read that will be submitted later, in the order of the "
          "calls.")
      .def(
          "forget",
          [](PyEngine& self, const PyAnnounced& announced) {
            self.engine->forget(announced.group);
          },
          nb::arg("announced"), "An announced batch will not be submitted.")
      .def(
          "read_ahead",
          [](const PyEngine& self) { return read_ahead_dict(self.engine->read_ahead()); },
          "Counts of records (resident, ahead, late, waits), requests and bytes to storage, bytes "
          "of buffers now and at most, threads.")
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
      .def("close", &PyEngine::close, "Leaves the pool; threads that no other engine needs end.")
      .def_prop_ro("threads", [](PyEngine& self) { return self.engine->threads(); })
      .def(
          "set_threads", [](PyEngine& self, int threads) { self.engine->set_threads(threads); },
          nb::arg("threads"), nb::call_guard<nb::gil_scoped_release>(),
          "Changes how many threads work for this engine at once.")
      .def_prop_ro("sample_bytes",
                   [](const PyEngine& self) { return self.engine->plan().sample_bytes(); })
      .def(
          "stats",
          [](PyEngine& self) {
            nb::list all;
            for (int i = 0; i < self.engine->seats(); ++i) all.append(thread_stats(self, i));
            return all;
          },
          "A dict for each thread that there may be: seconds by stage, records by decoding path, "
          "samples, bytes, faults; in_use: whether it is within the limit.");
  m.def(
      "pool_threads", [] { return Pool::of_process().threads(); },
      "Decoding threads of this process.");
}

}  // namespace fastload::bindings
