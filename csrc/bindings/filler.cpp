// Filling caches, and what a path's file system is.
#include "cache/filler.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <optional>

#include "cache/cache_file.h"
#include "cache/coefficient_target.h"
#include "cache/pixel_target.h"
#include "fallback.h"
#include "gil.h"
#include "io/file.h"
#include "read_ahead/kept_share.h"
#include "register.h"

namespace nb = nanobind;

namespace fastload::bindings {
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
             nb::object fallback) {
            DecodeLimits limits;
            limits.max_pixels = max_pixels;
            new (self) PixelTarget(cache, decoded_side, limits, make_fallback(std::move(fallback)));
          },
          nb::arg("cache"), nb::arg("decoded_side"), nb::arg("max_pixels"),
          nb::arg("fallback").none(), nb::keep_alive<1, 2>(),
          "Decodes and scales each record; decoded_side, max_pixels and fallback as Engine's.");
  nb::class_<CoefficientTarget, FillTarget>(m, "CoefficientTarget",
                                            "A node cache of coefficient records.")
      .def(
          "__init__",
          [](CoefficientTarget* self, CacheFile& cache, uint64_t max_pixels) {
            DecodeLimits limits;
            limits.max_pixels = max_pixels;
            new (self) CoefficientTarget(cache, limits);
          },
          nb::arg("cache"), nb::arg("max_pixels"), nb::keep_alive<1, 2>(),
          "Transcodes each JPEG of at most max_pixels; other records stay as they are.");
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
      .def("start", &Filler::start)
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
