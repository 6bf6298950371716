// RecordFeed: encoded records of whole batches, as views, for a decoder that is not ours.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "base/error.h"
#include "collate/batch.h"
#include "convert.h"
#include "engine/record_feed.h"
#include "gil.h"
#include "register.h"
#include "sources.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

using IdsArg = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using DrawsArg = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// After fork() the feed's threads are the parent's: a child leaks it.
struct PyFeed {
  std::unique_ptr<RecordFeed> feed;
  nb::object sources;  // keeps the readers and caches alive
  pid_t owner = ::getpid();

  ~PyFeed() {
    if (::getpid() != owner) static_cast<void>(feed.release());
  }
  // Throws Error(kState) once it is closed.
  [[nodiscard]] nb::object open_sources() const {
    if (sources.is_valid()) return sources;
    throw Error(ErrorKind::kState, "The loader is closed. Create a new DataLoader.");
  }
  // A closed feed reads no more: its caches are let go, but for the records that are in use.
  void close() {
    {
      const GilRelease release;
      if (::getpid() == owner) feed->close();
    }
    sources.reset();
  }
};

struct PyRead {
  std::shared_ptr<void> group;
};

RecordRequest read_request(const IdsArg& ids, const std::optional<DrawsArg>& draws, uint64_t epoch,
                           double share, uint64_t most_bytes) {
  RecordRequest request;
  request.ids = {ids.data(), ids.size()};
  if (draws) request.draws = {draws->data(), draws->size()};
  request.epoch = epoch;
  request.share = share;
  request.most_bytes = most_bytes;
  return request;
}

// (n, 2) of a batch's numbers; keeps the batch alive.
template <typename T>
nb::ndarray<T, nb::numpy, nb::ndim<2>> pairs(std::vector<T>& values, nb::handle owner) {
  return {values.data(), {values.size() / 2, 2}, owner};
}

nb::list views(nb::handle self) {
  auto& batch = nb::cast<RecordBatch&>(self);
  nb::list result;
  for (const Bytes& record : batch.records) {
    // DALI's constructor takes writable arrays only; nothing writes to them.
    auto* data = const_cast<uint8_t*>(record.data());
    result.append(nb::ndarray<uint8_t, nb::numpy, nb::ndim<1>>(data, {record.size()}, self));
  }
  return result;
}

void register_batch(nb::module_& m) {
  nb::class_<RecordBatch>(m, "RecordBatch", "See csrc/core/engine/record_feed.h.")
      .def("__len__", [](const RecordBatch& batch) { return batch.records.size(); })
      .def_prop_ro(
          "positions",
          [](nb::handle self) {
            auto& positions = nb::cast<RecordBatch&>(self).positions;
            return nb::ndarray<int64_t, nb::numpy, nb::ndim<1>>(positions.data(),
                                                                {positions.size()}, self);
          },
          "(n,) int64, ascending: which positions of the batch they are.")
      .def_prop_ro("records", &views, "The encoded bytes, (length,) uint8 each: not to be written.")
      .def_prop_ro("start",
                   [](nb::handle self) { return pairs(nb::cast<RecordBatch&>(self).start, self); })
      .def_prop_ro("shape",
                   [](nb::handle self) { return pairs(nb::cast<RecordBatch&>(self).shape, self); })
      .def_prop_ro(
          "roi_start",
          [](nb::handle self) { return pairs(nb::cast<RecordBatch&>(self).roi_start, self); })
      .def_prop_ro("roi_end", [](nb::handle self) {
        return pairs(nb::cast<RecordBatch&>(self).roi_end, self);
      });
}

}  // namespace

void register_records(nb::module_& m) {
  m.attr("ELSEWHERE") = kElsewhere;
  register_batch(m);
  nb::class_<PyRead>(m, "AnnouncedRecords", "Records that are read ahead.");
  nb::class_<PyFeed>(m, "RecordFeed", "See csrc/core/engine/record_feed.h.")
      .def(
          "__init__",
          [](PyFeed* self, const nb::sequence& sources, const GeometrySpec& geometry,
             int out_height, int out_width, uint64_t seed, uint64_t max_pixels, uint64_t read_ahead,
             double keep) {
            RecordFeed::Plan plan{geometry, out_width, out_height, seed, {}};
            plan.limits.max_pixels = max_pixels;
            new (self) PyFeed{std::make_unique<RecordFeed>(read_sources(sources), plan,
                                                           ReadAheadPlan{read_ahead, keep}),
                              nb::list(sources)};
          },
          nb::arg("sources"), nb::arg("geometry"), nb::arg("out_height"), nb::arg("out_width"),
          nb::arg("seed"), nb::arg("max_pixels"), nb::arg("read_ahead") = 0, nb::arg("keep") = 1.0)
      .def(
          "announce",
          [](PyFeed& self, const IdsArg& ids, const std::optional<DrawsArg>& draws, uint64_t epoch,
             double share) {
            return PyRead{self.feed->announce(read_request(ids, draws, epoch, share, 0))};
          },
          nb::arg("ids"), nb::arg("draws").none(), nb::arg("epoch"), nb::arg("share"),
          "Has the records of a batch read that will be fetched later, in the order of the calls.")
      .def(
          "forget", [](PyFeed& self, const PyRead& read) { self.feed->forget(read.group); },
          nb::arg("announced"))
      .def(
          "fetch",
          [](PyFeed& self, const IdsArg& ids, const std::optional<DrawsArg>& draws, uint64_t epoch,
             double share, uint64_t most_bytes, const PyRead* announced) {
            const RecordRequest request = read_request(ids, draws, epoch, share, most_bytes);
            const std::shared_ptr<void> group = announced != nullptr ? announced->group : nullptr;
            // The readers own the mappings; and another thread may close the feed meanwhile.
            const std::shared_ptr<PyObject> sources = shared_owner(self.open_sources());
            const GilRelease release;
            std::unique_ptr<RecordBatch> batch = self.feed->fetch(request, group);
            batch->held.push_back(sources);
            return batch;
          },
          nb::arg("ids"), nb::arg("draws").none(), nb::arg("epoch"), nb::arg("share"),
          nb::arg("most_bytes"), nb::arg("announced").none() = nb::none(), nb::lock_self(),
          "RecordBatch of what the other decoder gets of the samples ids (n,) int64.")
      .def(
          "refuse",
          [](PyFeed& self, const IdsArg& ids) { self.feed->refuse({ids.data(), ids.size()}); },
          nb::arg("ids"), "The other decoder is given these samples no more.")
      .def(
          "accept",
          [](PyFeed& self, const IdsArg& ids) { self.feed->accept({ids.data(), ids.size()}); },
          nb::arg("ids"), "These samples were decoded without an error.")
      .def("require_accepted", [](PyFeed& self) { self.feed->require_accepted(); })
      .def("read_ahead",
           [](const PyFeed& self) { return read_ahead_dict(self.feed->read_ahead()); })
      .def("close", &PyFeed::close, nb::lock_self());
}

}  // namespace fastload::bindings
