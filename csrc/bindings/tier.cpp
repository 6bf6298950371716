// The disk tier.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>

#include "cache/disk_tier.h"
#include "convert.h"
#include "gil.h"
#include "register.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

using Numbers = nb::ndarray<const uint16_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::dict counts(const DiskTier& tier) {
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
      .def("counts", &counts,
           "Of this process: hits, misses, stored, dropped, declined, damaged, overtaken, failed, "
           "busy records, hit_bytes, miss_bytes. Of the node: held_records, held_bytes (slots).");
}

}  // namespace fastload::bindings
