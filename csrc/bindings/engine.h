// What the bindings of the engine share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "fallback.h"
#include "gil.h"
#include "mosaic.h"
#include "sources.h"

namespace fastload::bindings {

namespace nb = nanobind;

using MemoryArg = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using IdsArg = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using DrawsArg = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

using PartnersArg = nb::ndarray<const int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

inline std::vector<int64_t> partner_list(const std::optional<PartnersArg>& partners) {
  if (!partners) return {};
  return {partners->data(), partners->data() + partners->size()};
}

// nanobind holds the class itself, so the pointer that leaks after fork needs a class around it.
struct PyEngine {
  EnginePointer engine;
  nb::object sources;  // keeps the readers and caches alive

  // A closed engine reads no more: its caches are let go. Not where one of its own threads closes
  // it, which is in the middle of a record.
  void close() {
    const bool working = Pool::is_working_for(*engine);
    {
      const GilRelease release;
      engine->close();
    }
    if (!working) sources.reset();
  }

  // A thread that is waited for may need the GIL for a decoder written in Python.
  ~PyEngine() {
    if (engine && Pool::is_working_for(*engine)) sources.release();  // the engine is leaked, too
    const GilRelease release;
    engine.reset();
  }
};

struct PyAnnounced {
  std::shared_ptr<void> group;
};

inline uint64_t queue(PyEngine& self, BatchRequest request, nb::object memory, const IdsArg& ids,
                      const std::optional<DrawsArg>& draws, uint64_t epoch,
                      const PyAnnounced* announced, const std::optional<PartnersArg>& partners) {
  request.ids.assign(ids.data(), ids.data() + ids.size());
  if (draws) request.draws.assign(draws->data(), draws->data() + draws->size());
  request.partners = partner_list(partners);
  request.epoch = epoch;
  if (announced != nullptr) request.ahead = announced->group;
  request.owner = shared_owner(std::move(memory));  // the arrays that the batch fills
  return self.engine->submit(std::move(request));
}

// What all kinds of loaders say of their threads and of reading.
struct Running {
  int threads, most_threads;
  std::vector<int> cpus;
  uint64_t read_ahead;
  double keep;
};

inline void make(PyEngine* self, Sources sources, SamplePlan plan, Running running,
                 nb::object fallback, nb::object kept) {
  new (self)
      PyEngine{make_engine(std::move(sources), std::move(plan),
                           {running.threads, running.most_threads, std::move(running.cpus)},
                           make_fallback(std::move(fallback)), {running.read_ahead, running.keep}),
               std::move(kept)};
}

inline SamplePlan sample_plan(FieldsPlan fields, uint64_t seed, uint64_t max_pixels,
                              uint32_t decoded_side, DecodeOnce once = DecodeOnce::kCheaper,
                              const std::optional<MosaicArg>& mosaic = {}, size_t kept = 0,
                              bool share = true) {
  SamplePlan plan{std::move(fields), seed, {}, decoded_side, once, to_mosaic(mosaic), kept, share};
  plan.limits.max_pixels = max_pixels;
  return plan;
}

// The engine's constructor, measure() and submit().
void add_fields(nb::class_<PyEngine>& engine);

}  // namespace fastload::bindings
