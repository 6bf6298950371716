// The node's cache in memory, and its tier on disk.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <vector>

#include "cache/bounded.h"
#include "cache/cache_file.h"
#include "cache/disk_tier.h"
#include "convert.h"
#include "gil.h"
#include "register.h"

namespace nb = nanobind;

namespace fastload::bindings {

// ---- The node cache's file

namespace {

using TableArg = nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void seal(const TableArg& table, uint64_t first) {
  if (table.shape(1) != sizeof(CacheEntry)) throw nb::value_error("32 bytes an entry");
  seal_places(reinterpret_cast<CacheEntry*>(table.data()), table.shape(0), first);
}

Table table(int which) { return which == 0 ? Table::kIndex : Table::kEntries; }

using Sides = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Sizes = nb::ndarray<uint32_t, nb::numpy, nb::ndim<2>>;

Sizes bounded_sizes(const Sides& widths, const Sides& heights, uint32_t max_side) {
  if (widths.size() != heights.size()) throw nb::value_error("as many widths as heights");
  auto sizes = std::make_unique<std::vector<uint32_t>>(2 * widths.size());
  for (size_t i = 0; i < widths.size(); ++i) {
    const Extent size = bounded({widths.data()[i], heights.data()[i]}, max_side);
    (*sizes)[2 * i] = size.width;
    (*sizes)[2 * i + 1] = size.height;
  }
  uint32_t* const data = sizes->data();
  const nb::capsule owner(sizes.release(), [](void* memory) noexcept {
    delete static_cast<std::vector<uint32_t>*>(memory);
  });
  return Sizes(data, {widths.size(), 2}, owner);
}

nb::dict counts(const CacheFile& file) {
  const CacheFile::Counts counts = file.counts();
  nb::dict result;
  result["hits"] = counts.hits;
  result["misses"] = counts.misses;
  result["stored"] = counts.stored;
  result["damaged"] = counts.damaged;
  result["failed"] = counts.failed;
  if (file.has_shorter()) {
    result["transcoded"] = counts.transcoded;
    result["as_they_are"] = counts.as_they_are;
    result["transcode_seconds"] = static_cast<double>(counts.transcode_ns) * 1e-9;
  }
  result["ready_records"] = counts.ready_records;
  result["ready_bytes"] = counts.ready_bytes;
  result["reserved_bytes"] = counts.reserved_bytes;
  return result;
}

nb::object find(const CacheFile& file, uint64_t id) {
  const Bytes bytes = file.find(id);
  if (bytes.empty()) return nb::none();
  nb::bytes copy(bytes.data(), bytes.size());
  return is_lost(bytes) ? nb::object(nb::none()) : nb::object(std::move(copy));
}

}  // namespace

void register_cache(nb::module_& m) {
  nb::class_<CacheFile>(m, "CacheFile", nb::is_weak_referenceable(),
                        "Records in memory, for all processes; see csrc/core/cache/cache_file.h.")
      .def(nb::init<int, std::string>(), nb::arg("descriptor"), nb::arg("path"),
           "Attaches to the file that `descriptor` has open; owns the descriptor, also on failure.")
      .def("__len__", &CacheFile::size, "Records of the set.")
      .def_prop_ro("path", &CacheFile::path)
      .def_prop_ro("is_writable", &CacheFile::is_writable)
      .def_prop_ro("file_bytes", [](const CacheFile& file) { return file.header().file_size; })
      .def_prop_ro("room_records", [](const CacheFile& file) { return file.header().room_records; })
      .def_prop_ro(
          "room_bytes", [](const CacheFile& file) { return file.header().data_size; },
          "Bytes of the records that have a place.")
      .def_prop_ro("set_bytes", [](const CacheFile& file) { return file.header().set_bytes; })
      .def("has_room", &CacheFile::has_room, nb::arg("sample"))
      .def("is_ready", &CacheFile::is_ready, nb::arg("sample"))
      .def("find", &find, nb::arg("sample"), "A copy of the record, unchecked; None: not there.")
      .def(
          "store",
          [](CacheFile& file, uint64_t id, const BytesArg& bytes, uint32_t crc) {
            file.store(id, as_bytes(bytes), crc);
          },
          nb::arg("sample"), nb::arg("bytes"), nb::arg("crc"), nb::call_guard<GilRelease>(),
          "Puts a record into its place.")
      .def("claim", &CacheFile::claim, nb::arg("begin"), nb::arg("end"),
           "Locks bytes of the file against other claims; False if they are claimed.")
      .def("release", &CacheFile::release, nb::arg("begin"), nb::arg("end"))
      .def(
          "has_copy",
          [](const CacheFile& file, int which) { return !file.copy(table(which)).empty(); },
          nb::arg("table"), "Whether the copy of index.fli (0), entries.fli (1) is complete.")
      .def(
          "copy_range",
          [](const CacheFile& file, int which) { return file.copy_range(table(which)); },
          nb::arg("table"), "Offset and size of the copy in the file; size 0: it has no room.")
      .def(
          "write_copy",
          [](CacheFile& file, int which, uint64_t offset, const BytesArg& bytes) {
            return file.write_copy(table(which), offset, as_bytes(bytes));
          },
          nb::arg("table"), nb::arg("offset"), nb::arg("bytes"),
          "Writes bytes of the copy, under a claim of its range; the last ones make it complete. "
          "False if it cannot be written.")
      .def("counts", &counts,
           "Of this process: hits, misses, stored, damaged, failed records; of a file of coefficient "
           "records also transcoded, as_they_are, and the threads' transcode_seconds. Of the node: "
           "ready_records, ready_bytes, reserved_bytes.")
      .def("count_ready", &CacheFile::count_ready, nb::call_guard<GilRelease>(),
           "The ready records, counted one by one.");
  m.attr("UNBOUNDED") = kUnbounded;
  m.def(
      "bounded_sizes", &bounded_sizes, nb::arg("widths"), nb::arg("heights"), nb::arg("max_side"),
      "(n, 2) uint32: widths and heights (n,) uint32, below 2^24, scaled until the longer side is "
      "at most max_side; the shorter one rounded, to even where it lies halfway, and at least 1.");
  m.def("seal_cache_places", &seal, nb::arg("table"), nb::arg("first"),
        "Fills in the checksums of places: entries (n, 32) uint8 of the samples from `first` on.");
}

// ---- The disk tier

namespace {

using Numbers = nb::ndarray<const uint16_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::dict tier_counts(const DiskTier& tier) {
  const DiskTier::Counts counts = tier.counts();
  nb::dict result;
  result["hits"] = counts.hits;
  result["hit_bytes"] = counts.hit_bytes;
  result["misses"] = counts.misses;
  result["miss_bytes"] = counts.miss_bytes;
  result["stored"] = counts.stored;
  result["dropped"] = counts.dropped;
  result["declined"] = counts.declined;
  result["damaged"] = counts.damaged;
  result["overtaken"] = counts.overtaken;
  result["failed"] = counts.failed;
  result["busy"] = counts.busy;
  result["held_records"] = counts.held_records;
  result["held_bytes"] = counts.held_bytes;
  return result;
}

}  // namespace

void register_tier(nb::module_& m) {
  nb::class_<DiskTier>(m, "DiskTier",
                       "Records on a local disk, for all processes; see "
                       "csrc/core/cache/disk_tier.h.")
      .def(nb::init<int, std::string, bool>(), nb::arg("descriptor"), nb::arg("path"),
           nb::arg("alone"), nb::call_guard<GilRelease>(),
           "Attaches to the table that `descriptor` has open; owns the descriptor, also on "
           "failure. alone: nobody else uses the tier now.")
      .def("__len__", &DiskTier::size, "Records of the set.")
      .def_prop_ro("path", &DiskTier::path)
      .def_prop_ro(
          "room_bytes", [](const DiskTier& tier) { return tier.header().data_size; },
          "Bytes of all slots.")
      .def_prop_ro("room_records", [](const DiskTier& tier) { return tier.header().num_slots; })
      .def_prop_ro("set_bytes", [](const DiskTier& tier) { return tier.header().set_bytes; })
      .def_prop_ro(
          "full", [](const DiskTier& tier) { return tier.counts().full; },
          "Whether the disk had no room for more.")
      .def_prop_ro(
          "write_error", [](const DiskTier& tier) { return tier.counts().write_error; },
          "errno of the last record that could not be written; 0: none.")
      .def(
          "find",
          [](const DiskTier& tier, uint64_t id, uint32_t length) -> nb::object {
            const auto offset = tier.find(id, length);
            return offset ? nb::object(nb::int_(*offset)) : nb::object(nb::none());
          },
          nb::arg("sample"), nb::arg("length"),
          "Where in the file of slots a record of that length may be; None: it is not there.")
      .def(
          "store",
          [](DiskTier& tier, uint64_t id, const BytesArg& bytes) {
            tier.store(id, as_bytes(bytes));
          },
          nb::arg("sample"), nb::arg("bytes"), nb::call_guard<GilRelease>(),
          "Puts a record there, if it is worth it.")
      .def(
          "set_order",
          [](DiskTier& tier, uint64_t epoch, const Numbers& masks, const Numbers& levels) {
            tier.uses().set({epoch,
                             {masks.data(), masks.data() + masks.size()},
                             {levels.data(), levels.data() + levels.size()}});
          },
          nb::arg("epoch"), nb::arg("masks"), nb::arg("levels"), nb::call_guard<GilRelease>(),
          "When samples are needed from an epoch on: masks (n,) uint16, bit k: in epoch + k; "
          "levels "
          "(n,) uint16: how far in the first of them.")
      .def(
          "move",
          [](DiskTier& tier, uint64_t epoch, uint32_t level, bool reads_on) {
            tier.uses().move(epoch, level, reads_on);
          },
          nb::arg("epoch"), nb::arg("level"), nb::arg("reads_on"),
          "How far samples were used; reads_on: what is read ahead may be the next epoch's.")
      .def("counts", &tier_counts,
           "Of this process: hits, misses, stored, dropped, declined, damaged, overtaken, failed, "
           "busy records, hit_bytes, miss_bytes. Of the node: held_records, held_bytes (slots).");
}

}  // namespace fastload::bindings
