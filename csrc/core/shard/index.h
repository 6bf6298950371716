// index.fli: one 32-byte entry a record, and its key (layout: FORMAT.md).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shard/paged_file.h"

namespace fastload {

// One entry, as it lies in the file (little-endian).
struct Record {
  uint64_t offset;  // first byte in the shard file
  uint32_t length;  // bytes, >= 1
  uint32_t crc32c;  // of those bytes
  int32_t label;    // class index, -1: none
  uint32_t shard;   // index into the manifest's shards
  uint16_t width;   // pixels, 0: not known
  uint16_t height;  // pixels, 0: not known
  uint8_t codec;    // enum Codec
  uint8_t channels;
  uint8_t flags;
  uint8_t reserved;
};
static_assert(sizeof(Record) == 32);

// Safe to use from many threads.
class Index {
 public:
  // Throws as PagedFile.
  explicit Index(const std::string& path);
  // The same index, for a user of a cache; see PagedFile.
  Index(const Index& index, std::shared_ptr<const KeptTables> cache)
      : file_(index.file_, std::move(cache), Table::kIndex) {}

  [[nodiscard]] uint64_t size() const { return file_.header().num_records; }
  // Identifies the index's whole contents.
  [[nodiscard]] uint32_t digest() const { return file_.digest(); }
  [[nodiscard]] const std::string& path() const { return file_.path(); }
  // The entry of sample `id`. Throws Error(kValue) if id >= size(), Error(kChecksum).
  Record record(uint64_t id);
  // All entries, checked; pages of the whole table are read. A view that lives as long as the
  // index, or of `own`.
  std::span<const Record> records(std::vector<Record>& own);
  // The record's name in the source, UTF-8.
  std::string key(uint64_t id);
  // Checks every page. Throws Error(kChecksum).
  void verify() { file_.verify(); }

 private:
  void check_id(uint64_t id) const;

  PagedFile file_;
};

}  // namespace fastload
