// Entry points: the file's reader, and making them.
#include "shard/entries.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>

#include "cache/cache_file.h"
#include "gil.h"
#include "io/guarded_range.h"
#include "pack/entries_of.h"
#include "register.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

using Ids = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Sizes = nb::ndarray<uint32_t, nb::numpy, nb::shape<-1, 2>>;

nb::bytes copied(Entries& entries, Bytes (Entries::*get)(uint64_t, std::vector<uint8_t>&),
                 uint64_t id) {
  std::vector<uint8_t> scratch;
  for (;;) {
    const Bytes packed = (entries.*get)(id, scratch);
    nb::bytes copy(packed.data(), packed.size());
    if (entries.is_there(packed)) return copy;
  }
}

nb::tuple build(Reader& reader, const Ids& ids, int spacing) {
  auto made = std::make_unique<PackedEntries>();
  {
    GilRelease release;
    *made = entries_of(reader, {ids.data(), ids.size()}, spacing);
  }
  nb::bytes packed(made->packed.data(), made->packed.size());
  uint32_t* sizes = made->sizes.data();
  const size_t count = made->sizes.size() / 2;
  nb::capsule owner(made.release(),
                    [](void* p) noexcept { delete static_cast<PackedEntries*>(p); });
  return nb::make_tuple(packed, Sizes(sizes, {count, 2}, owner));
}

}  // namespace

void register_entries(nb::module_& m) {
  nb::class_<Entries>(m, "Entries", "entries.fli: the JPEGs' entry points, by sample id.")
      .def(nb::init<const std::string&, const Index&>(), nb::arg("path"), nb::arg("index"))
      .def(nb::init<const Entries&, std::shared_ptr<CacheFile>>(), nb::arg("entries"),
           nb::arg("cache"),
           "The same, but from the copy in the cache as soon as that is complete.")
      .def("__len__", &Entries::size)
      .def_prop_ro("spacing", &Entries::spacing,
                   "Pixels between entry points, 0: one a row of MCUs.")
      .def_prop_ro("damaged", &Entries::damaged,
                   "Images decoded without, because theirs are damaged.")
      .def(
          "get", [](Entries& entries, uint64_t id) { return copied(entries, &Entries::get, id); },
          nb::arg("sample"), "The packed entry points of a sample, empty if it has none.")
      .def_prop_ro("part_bytes", &Entries::part_bytes,
                   "Bytes of the parts in which large records can be read; 0: none can.")
      .def(
          "get_parts",
          [](Entries& entries, uint64_t id) { return copied(entries, &Entries::get_parts, id); },
          nb::arg("sample"),
          "What is stored of a sample's parts, empty if it has none; layout: FORMAT.md.")
      .def("verify", &Entries::verify, nb::call_guard<GilRelease>(),
           "Checks every page; raises ChecksumError.");
  m.attr("PART_BYTES") = kPartBytes;
  m.def("build_entries", &build, nb::arg("reader"), nb::arg("ids"), nb::arg("spacing"),
        "Packed entry points and parts of samples `ids` (n,) uint64, back to back, and their sizes "
        "(n, 2) uint32.");
}

}  // namespace fastload::bindings
