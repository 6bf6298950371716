// Columns: the values of a field by sample id.
#include "sample/column.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convert.h"
#include "gil.h"
#include "register.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

using IdsArg = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::vector<int64_t> ends_of(Column& column, const IdsArg& ids) {
  std::vector<int64_t> ends{0};
  ends.reserve(ids.size() + 1);
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint64_t length = column.length(static_cast<uint64_t>(ids.data()[i]));
    ends.push_back(ends.back() + static_cast<int64_t>(length));
  }
  return ends;
}

nb::tuple gather(Column& column, const IdsArg& ids) {
  std::vector<int64_t> ends;
  std::vector<uint8_t> bytes;
  {
    const GilRelease release;
    ends = ends_of(column, ids);
    bytes.resize(static_cast<size_t>(ends.back()));
    for (size_t i = 0; i < ids.size(); ++i) {
      column.copy(static_cast<uint64_t>(ids.data()[i]), bytes.data() + ends[i],
                  static_cast<uint64_t>(ends[i + 1] - ends[i]));
    }
  }
  return nb::make_tuple(array(std::move(bytes)), array(std::move(ends)));
}

nb::bytes value(Column& column, uint64_t id) {
  std::vector<uint8_t> bytes(column.length(id));
  column.copy(id, bytes.data(), bytes.size());
  return nb::bytes(bytes.data(), bytes.size());
}

nb::ndarray<nb::numpy, const uint8_t, nb::ndim<2>> records(Column& column) {
  auto all = std::make_unique<std::vector<Record>>();
  {
    const GilRelease release;
    all->reserve(column.size());
    for (uint64_t id = 0; id < column.size(); ++id) all->push_back(column.record(id));
  }
  const auto* const data = reinterpret_cast<const uint8_t*>(all->data());
  const size_t count = all->size();
  const nb::capsule owner(all.release(), [](void* memory) noexcept {
    delete static_cast<std::vector<Record>*>(memory);
  });
  return {data, {count, sizeof(Record)}, owner};
}

uint64_t longest(Column& column) {
  const GilRelease release;
  uint64_t most = 0;
  for (uint64_t id = 0; id < column.size(); ++id) most = std::max(most, column.length(id));
  return most;
}

}  // namespace

void register_column(nb::module_& m) {
  nb::class_<Column>(m, "Column", "field-NN.fli: the values of one field, by sample id.")
      .def(
          "__init__",
          [](Column* self, const std::string& path, const std::string& storage, uint32_t width) {
            new (self) Column(path, storage_of(storage), width);
          },
          nb::arg("path"), nb::arg("storage"), nb::arg("width") = 1,
          "storage: record, fixed or ragged. width: bytes of a value (fixed) or row (ragged).")
      .def("__len__", &Column::size)
      .def_prop_ro("width", &Column::width, "Bytes of a value, or of a row.")
      .def_prop_ro("digest", &Column::digest, "CRC-32C of header and page table.")
      .def(
          "record",
          [](Column& column, uint64_t id) {
            const Record record = column.record(id);
            return nb::bytes(&record, sizeof(record));
          },
          nb::arg("sample"), "The entry of a record column, 32 bytes, checked.")
      .def("records", &records,
           "All entries of a record column as (n, 32) uint8, checked; view as "
           "fastload.shard.index.RECORD.")
      .def("longest", &longest, "Bytes of the longest value; every length is looked at.")
      .def("value", &value, nb::arg("sample"), "The value's bytes, checked.")
      .def("gather", &gather, nb::arg("ids"),
           "The values of samples `ids` (n,) int64, back to back, as uint8, and where each begins "
           "(n + 1,) int64, in bytes.")
      .def("verify", &Column::verify, nb::call_guard<GilRelease>(),
           "Checks every page and every length; raises ChecksumError or FormatError.");
}

}  // namespace fastload::bindings
