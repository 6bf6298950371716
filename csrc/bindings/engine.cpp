// The engine, the memory of its batches, and fillers of caches.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "cache/cache_file.h"
#include "cache/coefficient_target.h"
#include "cache/filler.h"
#include "cache/pixel_target.h"
#include "collate/slot_pool.h"
#include "engine.h"
#include "fallback.h"
#include "gil.h"
#include "io/file.h"
#include "paths.h"
#include "read_ahead/kept_share.h"
#include "register.h"
#include "sources.h"

namespace nb = nanobind;

namespace fastload::bindings {

// ---- The engine: announce, wait, collect

namespace {

PyAnnounced announce(PyEngine& self, const IdsArg& ids, const std::optional<DrawsArg>& draws,
                     uint64_t epoch, const std::optional<PartnersArg>& partners) {
  std::vector<uint32_t> drawn;
  if (draws) drawn.assign(draws->data(), draws->data() + draws->size());
  return {self.engine->announce({ids.data(), ids.data() + ids.size()}, drawn, epoch,
                                partner_list(partners))};
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

nb::dict read_ahead_counts(const PyEngine& self) {
  return read_ahead_dict(self.engine->read_ahead());
}

nb::dict kept_counts(const PyEngine& self) {
  const KeptPictures::Counts counts = self.engine->kept();
  nb::dict result;
  result["used_again"] = counts.used_again;
  result["bytes"] = counts.bytes;
  return result;
}

nb::dict transcoding_counts(const PyEngine& self) {
  const Transcoder::Counts counts = self.engine->transcoding();
  nb::dict result;
  result["waiting_records"] = counts.waiting_records;
  result["waiting_bytes"] = counts.waiting_bytes;
  result["in_spare_time"] = counts.spare;
  result["at_once"] = counts.at_once;
  return result;
}

nb::dict thread_stats(PyEngine& self, int seat) {
  const ThreadStats& stats = self.engine->thread_stats(seat);
  static constexpr const char* kStageNames[kStages] = {"shard", "decode", "transform", "idle"};
  nb::dict seconds, result;
  for (size_t i = 0; i < kStages; ++i)
    seconds[kStageNames[i]] = 1e-9 * static_cast<double>(stats.nanoseconds[i].load());
  result["seconds"] = seconds;
  result["decoded"] = by_path(stats.records);
  result["samples"] = stats.samples.load();
  result["bytes"] = stats.bytes.load();
  result["faults"] = stats.faults.load();
  result["in_use"] = seat < self.engine->threads();
  return result;
}

// What an engine has counted.
void add_counts(nb::class_<PyEngine>& engine) {
  engine
      .def("read_ahead", &read_ahead_counts,
           "Counts of records (resident, ahead, late, waits), requests and bytes to storage, bytes "
           "of buffers now and at most, threads.")
      .def("kept", &kept_counts,
           "Pictures of mosaics that were kept and used again, and bytes of those kept now; "
           "used_again has those of windows that several frames of a batch share, too.")
      .def("transcoding", &transcoding_counts,
           "Records that wait to become coefficients (their bytes, too), that became them, or were "
           "stored as they are, by threads without other work, and by those that had decoded them.");
}

}  // namespace

void register_engine(nb::module_& m) {
  m.attr("IGNORE_LABEL") = kIgnoreLabel;
  m.attr("UNBOUNDED") = kUnbounded;
  m.attr("WAITING_BYTES") = Transcoder::kMostBytes;  // of records that wait to become coefficients
  nb::class_<PyAnnounced>(m, "Announced", "A batch whose records are read ahead.");
  nb::class_<PyEngine> engine(m, "Engine",
                              "Decoding threads that fill batches; see "
                              "csrc/core/engine/engine.h.");
  add_fields(engine);
  add_counts(engine);
  engine
      .def("announce", &announce, nb::arg("ids"), nb::arg("draws").none() = nb::none(),
           nb::arg("epoch") = 0, nb::arg("partners").none() = nb::none(),
           "Has the records of a batch read that will be submitted later, in the order of the "
           "calls.")
      .def(
          "forget",
          [](PyEngine& self, const PyAnnounced& announced) {
            self.engine->forget(announced.group);
          },
          nb::arg("announced"), "An announced batch will not be submitted.")
      .def(
          "wait",
          [](PyEngine& self, uint64_t ticket, double seconds) {
            return self.engine->wait(ticket, seconds);
          },
          nb::arg("ticket"), nb::arg("seconds"), nb::call_guard<GilRelease>(),
          "True once the batch is complete.")
      .def("collect", &collect, nb::arg("ticket"),
           "Takes a complete batch; its faults as (position, sample id, error kind, message).")
      .def(
          "cancel", [](PyEngine& self, uint64_t ticket) { self.engine->cancel(ticket); },
          nb::arg("ticket"), nb::call_guard<GilRelease>(),
          "Drops a batch; its memory is free afterwards.")
      .def("close", &PyEngine::close, nb::lock_self(),
           "Leaves the pool; threads that no other engine needs end.")
      .def_prop_ro("threads", [](PyEngine& self) { return self.engine->threads(); })
      .def(
          "set_threads", [](PyEngine& self, int threads) { self.engine->set_threads(threads); },
          nb::arg("threads"), nb::call_guard<GilRelease>(),
          "Changes how many threads work for this engine at once.")
      .def_prop_ro(
          "sample_bytes",
          [](const PyEngine& self) { return self.engine->plan().fields.picture_bytes(); },
          "Of pictures; 0 for those that differ in size.")
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

// ---- Memory of batches

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

// ---- Filling caches, and what a path's file system is

namespace {

using IdsArg = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

using Records = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Bools = nb::ndarray<bool, nb::numpy, nb::ndim<1>>;

Bools kept_records(const Records& records, double share) {
  if (records.shape(1) != sizeof(Record)) throw nb::value_error("32 bytes a record");
  const size_t count = records.shape(0);
  auto kept = std::make_unique<bool[]>(count);
  for (size_t i = 0; i < count; ++i) {
    Record record;
    std::memcpy(&record, records.data() + i * sizeof(record), sizeof(record));
    kept[i] = is_kept(record.shard, record.offset, share);
  }
  bool* const data = kept.get();
  const nb::capsule owner(kept.release(),
                          [](void* memory) noexcept { delete[] static_cast<bool*>(memory); });
  return Bools(data, {count}, owner);
}

nb::dict counts_of(const Filler& filler) {
  const Filler::Counts counts = filler.counts();
  nb::dict result;
  result["records"] = counts.records;
  result["bytes"] = counts.bytes;
  result["no_room_records"] = counts.no_room_records;
  result["no_room_bytes"] = counts.no_room_bytes;
  result["there_records"] = counts.there_records;
  result["there_bytes"] = counts.there_bytes;
  result["put_records"] = counts.put_records;
  result["put_bytes"] = counts.put_bytes;
  result["read_bytes"] = counts.read_bytes;
  result["requests"] = counts.requests;
  result["failed_records"] = counts.failed_records;
  result["claimed_chunks"] = counts.claimed_chunks;
  result["waits"] = counts.waits ? 1 : 0;
  return result;
}

}  // namespace

void register_filler(nb::module_& m) {
  nb::class_<FillTarget>(m, "FillTarget", "Where a Filler puts records.");
  nb::class_<CacheTarget, FillTarget>(m, "CacheTarget", "A node cache: encoded records.")
      .def(nb::init<CacheFile&>(), nb::arg("cache"), nb::keep_alive<1, 2>());
  nb::class_<PageCacheTarget, FillTarget>(m, "PageCacheTarget", "The page cache.")
      .def(nb::init<Reader&>(), nb::arg("reader"), nb::keep_alive<1, 2>());
  nb::class_<PixelTarget, FillTarget>(m, "PixelTarget", "A node cache of the decoded tier.")
      .def(
          "__init__",
          [](PixelTarget* self, CacheFile& cache, uint32_t decoded_side, uint64_t max_pixels,
             nb::object fallback, const ShownArg& shown) {
            DecodeLimits limits;
            limits.max_pixels = max_pixels;
            new (self) PixelTarget(cache, decoded_side, limits, make_fallback(std::move(fallback)),
                                   to_shown(shown));
          },
          nb::arg("cache"), nb::arg("decoded_side"), nb::arg("max_pixels"),
          nb::arg("fallback").none(), nb::arg("shown") = ShownArg{}, nb::keep_alive<1, 2>(),
          "Decodes and scales each record; decoded_side, max_pixels and fallback as Engine's, shown "
          "as Reader's.");
  nb::class_<CoefficientTarget, FillTarget>(m, "CoefficientTarget",
                                            "A node cache of coefficient records.")
      .def(
          "__init__",
          [](CoefficientTarget* self, CacheFile& cache, uint64_t max_pixels,
             const ShownArg& shown) {
            DecodeLimits limits;
            limits.max_pixels = max_pixels;
            new (self) CoefficientTarget(cache, limits, to_shown(shown));
          },
          nb::arg("cache"), nb::arg("max_pixels"), nb::arg("shown") = ShownArg{},
          nb::keep_alive<1, 2>(),
          "Transcodes each JPEG of at most max_pixels; other records stay as they are, and with "
          "shown as Reader's those that are turned.");
  nb::class_<Filler>(m, "Filler", "Threads that fill a cache; see csrc/core/cache/filler.h.")
      .def(
          "__init__",
          [](Filler* self, Reader& reader, FillTarget& target, std::string claims,
             uint64_t first_claim, int threads, const std::optional<IdsArg>& ids) {
            FillPlan plan;
            plan.threads = threads;
            plan.claims = std::move(claims);
            plan.first_claim = first_claim;
            plan.only_ids = ids.has_value();
            if (ids) plan.ids.assign(ids->data(), ids->data() + ids->size());
            const GilRelease release;
            new (self) Filler(reader, target, std::move(plan));
          },
          nb::arg("reader"), nb::arg("target"), nb::arg("claims"), nb::arg("first_claim"),
          nb::arg("threads"), nb::arg("ids").none() = nb::none(), nb::keep_alive<1, 2>(),
          nb::keep_alive<1, 3>(),
          "claims: path of a file whose byte ranges from first_claim on stand for sample ids, the "
          "same "
          "for all that fill this target; empty: nothing is claimed. ids: (n,) int64, ascending: "
          "the records that are wanted; None: all.")
      .def("start", &Filler::start, nb::lock_self())
      .def("wait", &Filler::wait, nb::arg("seconds"), nb::call_guard<GilRelease>(),
           "True once all that can be there is there.")
      .def("stop", &Filler::stop, nb::call_guard<GilRelease>(),
           "Ends the threads after the requests in hand.")
      .def("counts", &counts_of,
           "records and bytes that are wanted and have room (no_room_: have none), found there "
           "(there_), put there (put_), requested from the source (read_bytes, requests); "
           "failed_records; chunks that others have claimed now, and whether (1) nothing else is "
           "left.")
      .def("failures", &Filler::failures, "The first (sample id, reason)s.");
  m.def(
      "kept_records", &kept_records, nb::arg("records"), nb::arg("share"),
      "(n,) bool: which records (n, 32) uint8 stay in the page cache where that is to have a share "
      "of the set; see csrc/core/read_ahead/kept_share.h.");
  m.def(
      "file_system",
      [](const std::string& path) {
        const File file(path);
        nb::dict result;
        result["in_memory"] = file.is_in_memory();
        result["remote"] = file.is_remote();
        return result;
      },
      nb::arg("path"),
      "Whether a file or folder is on tmpfs or ramfs, or on a network file system.");
}

}  // namespace fastload::bindings
