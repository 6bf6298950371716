// The engine: submit, wait, collect.
#include "engine.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <span>

#include "gil.h"
#include "paths.h"
#include "register.h"
#include "sources.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

uint64_t submit(PyEngine& self, nb::object images, nb::object labels, const IdsArg& ids,
                const std::optional<DrawsArg>& draws, uint64_t epoch, const PyAnnounced* announced,
                const std::optional<PartnersArg>& partners) {
  const auto image_array = nb::cast<ImagesArg>(images);
  const auto label_array = nb::cast<LabelsArg>(labels);
  BatchRequest request;
  request.places = places_of_image_and_label(self.engine->plan().fields,
                                             {image_array.data(), image_array.size()},
                                             {label_array.data(), label_array.size()});
  return queue(self, std::move(request), nb::make_tuple(images, labels), ids, draws, epoch,
               announced, partners);
}

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
           "Pictures of mosaics that were kept and used again, and bytes of those kept now.")
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
      .def(
          "__init__",
          [](PyEngine* self, const nb::sequence& sources, const GeometrySpec& geometry,
             const StoreSpec& store, int out_height, int out_width, uint64_t seed, int threads,
             uint64_t max_pixels, nb::object fallback, int most_threads, std::vector<int> cpus,
             uint64_t read_ahead, double keep, uint32_t decoded_side, const nb::sequence& pixels,
             const PixelSpec& operations, const PixelSpec& source,
             const std::optional<MosaicArg>& mosaic, size_t kept) {
            FieldsPlan plan = FieldsPlan::of_image_and_label(
                {geometry, out_width, out_height, operations, source}, store);
            make(self, read_sources(sources, pixels, decoded_side),
                 sample_plan(std::move(plan), seed, max_pixels, decoded_side, {}, mosaic, kept),
                 {threads, most_threads, std::move(cpus), read_ahead, keep}, std::move(fallback),
                 nb::make_tuple(nb::list(sources), nb::list(pixels)));
          },
          nb::arg("sources"), nb::arg("geometry"), nb::arg("store"), nb::arg("out_height"),
          nb::arg("out_width"), nb::arg("seed"), nb::arg("threads"), nb::arg("max_pixels"),
          nb::arg("fallback").none(), nb::arg("most_threads") = 0,
          nb::arg("cpus") = std::vector<int>{}, nb::arg("read_ahead") = 0, nb::arg("keep") = 1.0,
          nb::arg("decoded_side") = 0, nb::arg("pixels") = nb::tuple(),
          nb::arg("operations") = PixelSpec{}, nb::arg("source") = PixelSpec{},
          nb::arg("mosaic").none() = nb::none(), nb::arg("kept") = 0,
          "sources: [(Reader, Entries or None, labels)], labels: what stands for each label of the "
          "source, [] for the same. threads: at once, of the process's pool; set_threads() goes up "
          "to most_threads. cpus: where the pool's threads run from now on, [] for anywhere. "
          "read_ahead: bytes of buffers, 0 for none. keep: share of the set that stays in the page "
          "cache once "
          "read. decoded_side: crops are cut from the picture scaled to this longest side; 0 for "
          "as it is, UNBOUNDED for no scaling. pixels: a CacheFile of that tier, or None, for each "
          "source; with decoded_side 0 one of coefficient records. operations: on the pixels, between resize and store; source: on those of whole "
          "pictures, before the crop. mosaic, kept: as for fields.")
      .def(
          "submit", &submit, nb::arg("images"), nb::arg("labels"), nb::arg("ids"),
          nb::arg("draws").none(), nb::arg("epoch"), nb::arg("announced").none() = nb::none(),
          nb::arg("partners").none() = nb::none(),
          "Queues a batch: images (n * sample_bytes,) uint8 and labels (n,) int64 are filled, ids "
          "(n,) "
          "int64 are sample ids (-1: padding), draws (n,) uint32 or None. announced: what "
          "announce() returned for them. partners (n, k) int64: what each is put together with, -1 "
          "for none, or None. Returns its ticket.")
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
      .def("close", &PyEngine::close, "Leaves the pool; threads that no other engine needs end.")
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

}  // namespace fastload::bindings
