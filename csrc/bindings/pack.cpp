// Reading source files and describing records, for pack, index and verify.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "convert.h"
#include "gil.h"
#include "pack/disk.h"
#include "pack/ingest.h"
#include "register.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

using BytesOut = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<uint8_t, nb::shape<-1, 32>, nb::c_contig, nb::device::cpu>;
using RowsIn = nb::ndarray<const uint8_t, nb::shape<-1, 32>, nb::c_contig, nb::device::cpu>;
using Ends = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FailureList = std::vector<std::pair<uint64_t, nb::bytes>>;

std::span<Record> as_records(const Rows& rows) {
  return {reinterpret_cast<Record*>(rows.data()), rows.shape(0)};
}

// As bytes: a reason may hold a file name, and a file name need not be UTF-8.
FailureList as_list(const Failures& failures) {
  FailureList list;
  for (const auto& [position, reason] : failures) {
    list.emplace_back(position, nb::bytes(reason.data(), reason.size()));
  }
  return list;
}

std::string path_of(const nb::bytes& path) { return {path.c_str(), path.size()}; }

}  // namespace

void register_pack(nb::module_& m) {
  m.def(
      "ingest",
      [](const nb::bytes& root, const BytesArg& names, const Ends& ends, const BytesOut& buffer,
         const Rows& records, const ShownArg& shown) {
        IngestResult result;
        const std::string folder = path_of(root);
        {
          GilRelease release;
          result = ingest(folder, as_bytes(names), {ends.data(), ends.size()},
                          {buffer.data(), buffer.size()}, as_records(records), DecodeLimits{},
                          to_shown(shown));
        }
        return std::make_tuple(result.done, result.used, result.needed, as_list(result.failures));
      },
      nb::arg("root"), nb::arg("names"), nb::arg("ends"), nb::arg("buffer"), nb::arg("records"),
      nb::arg("shown") = ShownArg{},
      "Reads files back to back into `buffer`; returns (files taken, bytes used, bytes needed, "
      "[(file, reason)]). `records` is a (n, 32) uint8 view of index entries; sizes are those of "
      "pictures as they are shown.");
  m.def(
      "describe",
      [](const BytesArg& data, const Rows& records, const ShownArg& shown) {
        Failures failures;
        {
          GilRelease release;
          failures = describe(as_bytes(data), as_records(records), DecodeLimits{}, to_shown(shown));
        }
        return as_list(failures);
      },
      nb::arg("data"), nb::arg("records"), nb::arg("shown") = ShownArg{},
      "Fills CRC, codec and size of records whose offset and length in `data` are set.");
  m.def(
      "describe_file",
      [](const nb::bytes& path, const Rows& records, const ShownArg& shown) {
        const std::string name = path_of(path);
        Failures failures;
        {
          GilRelease release;
          failures =
              describe_file(name, as_records(records), DecodeLimits{}, to_shown(shown));
        }
        return as_list(failures);
      },
      nb::arg("path"), nb::arg("records"), nb::arg("shown") = ShownArg{},
      "The same for byte ranges of a file.");
  m.def(
      "verify_file",
      [](const nb::bytes& path, const RowsIn& records) {
        const std::string name = path_of(path);
        const std::span<const Record> entries(reinterpret_cast<const Record*>(records.data()),
                                              records.shape(0));
        Failures failures;
        {
          GilRelease release;
          failures = verify_file(name, entries);
        }
        return as_list(failures);
      },
      nb::arg("path"), nb::arg("records"), "Lists the records whose bytes are missing or differ.");
  m.def(
      "reserve",
      [](const nb::bytes& path, uint64_t bytes) {
        const std::string name = path_of(path);
        GilRelease release;
        return reserve(name, bytes);
      },
      nb::arg("path"), nb::arg("bytes"),
      "Reserves disk blocks without changing the file's size; False where that is not possible.");
  m.def(
      "trim",
      [](const nb::bytes& path) {
        const std::string name = path_of(path);
        GilRelease release;
        trim(name);
      },
      nb::arg("path"), "Gives back blocks reserved beyond the file's end.");
}

}  // namespace fastload::bindings
