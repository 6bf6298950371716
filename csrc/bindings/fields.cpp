// Fields: the table of their kinds, and columns, which hold their values.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <utility>
#include <vector>

#include "register.h"
#include "sample/column.h"
#include "sample/kinds.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

using Ids = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
nb::object array(std::vector<T> values) {
  auto* const kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

std::vector<int64_t> ends_of(Column& column, const Ids& ids) {
  std::vector<int64_t> ends{0};
  ends.reserve(ids.size() + 1);
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint64_t length = column.length(static_cast<uint64_t>(ids.data()[i]));
    ends.push_back(ends.back() + static_cast<int64_t>(length));
  }
  return ends;
}

nb::tuple gather(Column& column, const Ids& ids) {
  std::vector<int64_t> ends;
  std::vector<uint8_t> bytes;
  {
    const nb::gil_scoped_release release;
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

}  // namespace

void register_fields(nb::module_& m) {
  nb::dict kinds;
  for (const KindRow& row : kFieldKinds) {
    const char* const storage = kStorageNames[static_cast<size_t>(row.storage)];
    kinds[row.name] = nb::make_tuple(static_cast<int>(row.kind), storage);
  }
  m.attr("FIELD_KINDS") = kinds;  // number and storage by name

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
      .def("value", &value, nb::arg("sample"), "The value's bytes, checked.")
      .def("gather", &gather, nb::arg("ids"),
           "The values of samples `ids` (n,) int64, back to back, as uint8, and where each begins "
           "(n + 1,) int64, in bytes.")
      .def("verify", &Column::verify, nb::call_guard<nb::gil_scoped_release>(),
           "Checks every page and every length; raises ChecksumError or FormatError.");
}

}  // namespace fastload::bindings
