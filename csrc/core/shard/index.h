// index.fli: one 32-byte entry a record, and its key (layout: FORMAT.md).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shard/paged_file.h"
#include "shard/record.h"

namespace fastload {

// Safe to use from many threads.
class Index final : public RecordTable {
 public:
  // Throws as PagedFile.
  explicit Index(const std::string& path);
  // The same index, for a user of a cache; see PagedFile.
  Index(const Index& index, std::shared_ptr<const KeptTables> cache)
      : file_(index.file_, std::move(cache), Table::kIndex) {}

  [[nodiscard]] uint64_t size() const override { return file_.header().num_records; }
  [[nodiscard]] uint32_t digest() const override { return file_.digest(); }
  [[nodiscard]] const std::string& path() const override { return file_.path(); }
  // Throws Error(kValue, kChecksum).
  Record record(uint64_t id) override;
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
