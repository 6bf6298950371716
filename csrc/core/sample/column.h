// field-NN.fli: the values of one field of all samples, by sample id (layout: FORMAT.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "sample/kinds.h"
#include "shard/paged_file.h"
#include "shard/record.h"

namespace fastload {

// Throws Error(kValue) for another word than "record", "fixed", "ragged" and "records".
Storage storage_of(std::string_view word);

// Safe to use from many threads.
class Column final : public RecordTable {
 public:
  // `width`: bytes of a value (kFixed) or of a row (kRagged), at least 1; records have their
  // own.
  // Throws as PagedFile, Error(kFormat) where the file has values of another storage or width, and
  // Error(kValue).
  Column(const std::string& path, Storage storage, uint32_t width);

  [[nodiscard]] uint64_t size() const override { return file_.header().num_records; }
  [[nodiscard]] Storage storage() const { return storage_; }
  [[nodiscard]] uint32_t width() const { return width_; }
  [[nodiscard]] uint32_t digest() const override { return file_.digest(); }
  [[nodiscard]] const std::string& path() const override { return file_.path(); }

  // Bytes of the value of sample `id`: a multiple of width(). Throws Error(kValue) if id >= size(),
  // Error(kFormat) where the table's entries fall, leave the file or cut a row in two, and as
  // PagedFile::find().
  uint64_t length(uint64_t id);
  // Copies the value, of `length` bytes as length() told, to `out`. Throws as length(), and
  // Error(kFormat) if it has another length by now.
  void copy(uint64_t id, uint8_t* out, uint64_t length);
  // The entry of a kRecord column. Throws as length().
  Record record(uint64_t id) override;
  // Of a kRecords column: how many records all samples have, and which of them are a sample's:
  // [first, second). Throws as length().
  [[nodiscard]] uint64_t record_count();
  std::pair<uint64_t, uint64_t> records_of(uint64_t id);
  // One of them, by its number among all. Throws as length().
  Record listed(uint64_t number);
  // Checks every page, and every entry of the table. Throws as length().
  void verify();

 private:
  // Where a value lies in the file.
  struct Range {
    uint64_t begin, length;
  };
  Range find(uint64_t id);
  [[nodiscard]] bool is_listed() const {
    return storage_ == Storage::kRagged || storage_ == Storage::kRecords;
  }
  void require_records() const;

  const Storage storage_;
  const uint32_t width_;
  PagedFile file_;
};

// All records of a kRecords column, by their numbers: what a Reader reads of a field whose samples
// have any number of pictures.
class ListedRecords final : public RecordTable {
 public:
  // `column` must outlive it. Throws as Column::record_count().
  explicit ListedRecords(Column& column) : column_(column), size_(column.record_count()) {}

  [[nodiscard]] uint64_t size() const override { return size_; }
  [[nodiscard]] uint32_t digest() const override { return column_.digest(); }
  [[nodiscard]] const std::string& path() const override { return column_.path(); }
  Record record(uint64_t id) override { return column_.listed(id); }
  // Which of them are a sample's.
  std::pair<uint64_t, uint64_t> records_of(uint64_t id) { return column_.records_of(id); }

 private:
  Column& column_;
  const uint64_t size_;
};

}  // namespace fastload
