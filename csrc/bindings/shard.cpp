// Shards' records, entry points and columns.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/cache_file.h"
#include "cache/disk_tier.h"
#include "convert.h"
#include "gil.h"
#include "io/guarded_range.h"
#include "pack/entries_of.h"
#include "register.h"
#include "remote/remote_store.h"
#include "sample/column.h"
#include "shard/entries.h"
#include "shard/index.h"
#include "shard/reader.h"

namespace nb = nanobind;

namespace fastload::bindings {

// ---- Index and Reader

namespace {

using RemoteShard = std::tuple<std::string, uint64_t, std::string>;

OpenSource remote_opener(std::shared_ptr<RemoteStore> store,
                         const std::vector<RemoteShard>& shards) {
  std::unordered_map<std::string, RemoteShard> by_name;
  for (const RemoteShard& shard : shards) {
    by_name.emplace(store->name() + "/" + std::get<0>(shard), shard);
  }
  return [store = std::move(store), by_name = std::move(by_name)](const std::string& name) {
    const auto& [path, size, etag] = by_name.at(name);
    return open_remote(store, path, size, etag);
  };
}

}  // namespace

void register_shard(nb::module_& m) {
  nb::class_<Index>(m, "Index", "index.fli, memory-mapped and checked page by page.")
      .def(nb::init<const std::string&>(), nb::arg("path"), nb::call_guard<GilRelease>())
      .def(nb::init<const Index&, std::shared_ptr<CacheFile>>(), nb::arg("index"), nb::arg("cache"),
           "The same, but from the copy in the cache as soon as that is complete.")
      .def("__len__", &Index::size)
      .def_prop_ro("digest", &Index::digest, "CRC-32C of header and page table.")
      .def(
          "records",
          [](nb::handle self) {
            auto& index = nb::cast<Index&>(self);
            auto own = std::make_unique<std::vector<Record>>();
            std::span<const Record> all;
            {
              GilRelease release;
              all = index.records(*own);
            }
            nb::object owner = nb::borrow(self);
            if (!own->empty()) {
              owner = nb::capsule(own.release(), [](void* records) noexcept {
                delete static_cast<std::vector<Record>*>(records);
              });
            }
            return nb::ndarray<const uint8_t, nb::numpy, nb::ndim<2>>(
                all.data(), {all.size(), sizeof(Record)}, owner);
          },
          "All entries as (n, 32) uint8, checked; view as fastload.shard.index.RECORD.")
      .def(
          "record",
          [](Index& index, uint64_t id) {
            const Record record = index.record(id);
            return nb::bytes(&record, sizeof(record));
          },
          nb::arg("sample"), "One entry, 32 bytes, checked.")
      .def(
          "key",
          [](Index& index, uint64_t id) {
            const std::string key = index.key(id);
            return nb::bytes(key.data(), key.size());
          },
          nb::arg("sample"), "The record's name in the source, UTF-8 bytes.")
      .def("verify", &Index::verify, nb::call_guard<GilRelease>(),
           "Checks every page; raises ChecksumError.");
}

void register_reader(nb::module_& m) {
  nb::class_<Reader>(m, "Reader", "Reads records by their byte ranges; checks range and CRC-32C.")
      .def(
          "__init__",
          [](Reader* self, Index& index,
             const std::vector<std::pair<std::string, uint64_t>>& shards) {
            std::vector<ShardFile> files;
            files.reserve(shards.size());
            for (const auto& [path, size] : shards) files.push_back({path, size});
            new (self) Reader(index, std::move(files));
          },
          nb::arg("index"), nb::arg("shards"), nb::keep_alive<1, 2>())
      .def(
          "__init__",
          [](Reader* self, Index& index, const std::vector<RemoteShard>& shards,
             std::shared_ptr<RemoteStore> store) {
            std::vector<ShardFile> files;
            for (const auto& [path, size, etag] : shards) {
              files.push_back({store->name() + "/" + path, size});
            }
            new (self) Reader(index, std::move(files), remote_opener(std::move(store), shards));
          },
          nb::arg("index"), nb::arg("shards"), nb::arg("store"), nb::keep_alive<1, 2>(),
          "Of a store: (path in the store, size, ETag or an empty one).")
      .def(nb::init<const Reader&, Column&>(), nb::arg("reader"), nb::arg("column"),
           nb::keep_alive<1, 3>(),
           "Of the same shards; reads the records of another field, which lie in a column.")
      .def(nb::init<const Reader&, ListedRecords&>(), nb::arg("reader"), nb::arg("records"),
           nb::keep_alive<1, 3>(),
           "Of the same shards; reads the records of lists, which lie in a column.")
      .def(nb::init<const Reader&, Index&, std::shared_ptr<CacheFile>, std::shared_ptr<DiskTier>>(),
           nb::arg("reader"), nb::arg("index"), nb::arg("cache").none(),
           nb::arg("tier").none() = nb::none(), nb::keep_alive<1, 3>(),
           "Of the same shards; looks in cache and tier first, and puts there what it reads.")
      .def(
          nb::init<const Reader&, Column&, std::shared_ptr<CacheFile>, std::shared_ptr<DiskTier>>(),
          nb::arg("reader"), nb::arg("column"), nb::arg("cache").none(),
          nb::arg("tier").none() = nb::none(), nb::keep_alive<1, 3>(),
          "The same of another field's records. reader: of that field, too, without a cache.")
      .def(nb::init<const Reader&, ListedRecords&, std::shared_ptr<CacheFile>,
                    std::shared_ptr<DiskTier>>(),
           nb::arg("reader"), nb::arg("records"), nb::arg("cache").none(),
           nb::arg("tier").none() = nb::none(), nb::keep_alive<1, 3>(),
           "The same of a field of lists of records.")
      .def(
          "read",
          [](Reader& reader, uint64_t id) {
            std::vector<uint8_t> scratch;
            for (;;) {
              Bytes bytes;
              {
                GilRelease release;
                bytes = reader.read(id, scratch);
              }
              nb::bytes copy(bytes.data(), bytes.size());
              if (reader.is_there(id, bytes, scratch)) return copy;  // else reading says so
            }
          },
          nb::arg("sample"), "A copy of the record's bytes.")
      .def("shard_path", &Reader::shard_path, nb::arg("sample"))
      .def(
          "show", [](Reader& reader, const ShownArg& shown) { reader.show(to_shown(shown)); },
          nb::arg("shown"),
          "Before the first picture is decoded: (whether pictures are turned as EXIF says, whether "
          "what is transparent lies on white). Readers made of this one for caches take it over.");
  m.def("loss_count", &loss_count,
        "How often mapped files have lost bytes; 0 while nothing was lost.");
  m.def("lost_files", &lost_files, "The paths of mapped files that have lost bytes.");
}

// ---- Entry points: the file's reader, and making them

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

// ---- Columns: the values of a field by sample id

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
    const bool listed = column.storage() == Storage::kRecords;
    const uint64_t count = listed ? column.record_count() : column.size();
    all->reserve(count);
    for (uint64_t id = 0; id < count; ++id) {
      all->push_back(listed ? column.listed(id) : column.record(id));
    }
  }
  const auto* const data = reinterpret_cast<const uint8_t*>(all->data());
  const size_t count = all->size();
  const nb::capsule owner(all.release(), [](void* memory) noexcept {
    delete static_cast<std::vector<Record>*>(memory);
  });
  return {data, {count, sizeof(Record)}, owner};
}

nb::object lengths(Column& column) {
  std::vector<int64_t> all;
  {
    const GilRelease release;
    all.reserve(column.size());
    for (uint64_t id = 0; id < column.size(); ++id) {
      all.push_back(static_cast<int64_t>(column.length(id)));
    }
  }
  return array(std::move(all));
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
          "storage: record, fixed, ragged or records. width: bytes of a value (fixed) or row "
          "(ragged).")
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
           "All entries of a column of records, or of lists of them, as (n, 32) uint8, checked; "
           "view as fastload.shard.index.RECORD.")
      .def("records_of", &Column::records_of, nb::arg("sample"),
           "Of a column of lists of records: which of records() are the sample's, [first, second).")
      .def("lengths", &lengths, "Bytes of each value, (n,) int64; every length is looked at.")
      .def("longest", &longest, "Bytes of the longest value; every length is looked at.")
      .def("value", &value, nb::arg("sample"), "The value's bytes, checked.")
      .def("gather", &gather, nb::arg("ids"),
           "The values of samples `ids` (n,) int64, back to back, as uint8, and where each begins "
           "(n + 1,) int64, in bytes.")
      .def("verify", &Column::verify, nb::call_guard<GilRelease>(),
           "Checks every page and every length; raises ChecksumError or FormatError.");

  nb::class_<ListedRecords>(m, "ListedRecords",
                            "The records of a column of lists of them, by their numbers.")
      .def(nb::init<Column&>(), nb::arg("column"), nb::keep_alive<1, 2>())
      .def("__len__", &ListedRecords::size);
}

}  // namespace fastload::bindings
