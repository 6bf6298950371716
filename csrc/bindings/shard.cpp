// Index and Reader.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "cache/cache_file.h"
#include "cache/disk_tier.h"
#include "gil.h"
#include "io/guarded_range.h"
#include "register.h"
#include "remote/remote_store.h"
#include "sample/column.h"
#include "shard/index.h"
#include "shard/reader.h"

namespace nb = nanobind;

namespace fastload::bindings {
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
      .def(nb::init<const Reader&, Index&, std::shared_ptr<CacheFile>, std::shared_ptr<DiskTier>>(),
           nb::arg("reader"), nb::arg("index"), nb::arg("cache").none(),
           nb::arg("tier").none() = nb::none(), nb::keep_alive<1, 3>(),
           "Of the same shards; looks in cache and tier first, and puts there what it reads.")
      .def(
          nb::init<const Reader&, Column&, std::shared_ptr<CacheFile>, std::shared_ptr<DiskTier>>(),
          nb::arg("reader"), nb::arg("column"), nb::arg("cache").none(),
          nb::arg("tier").none() = nb::none(), nb::keep_alive<1, 3>(),
          "The same of another field's records. reader: of that field, too, without a cache.")
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
      .def("shard_path", &Reader::shard_path, nb::arg("sample"));
  m.def("loss_count", &loss_count,
        "How often mapped files have lost bytes; 0 while nothing was lost.");
  m.def("lost_files", &lost_files, "The paths of mapped files that have lost bytes.");
}

}  // namespace fastload::bindings
