// field-NN.fli: the values of one field of all samples, by sample id (layout: FORMAT.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "sample/kinds.h"
#include "shard/paged_file.h"
#include "shard/record.h"

namespace fastload {

// Throws Error(kValue) for another word than "record", "fixed" and "ragged".
Storage storage_of(std::string_view word);

// Safe to use from many threads.
class Column final : public RecordTable {
 public:
  // `width`: bytes of a value (kFixed) or of a row (kRagged), at least 1; kRecord has its own.
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
  // Checks every page, and every entry of the table. Throws as length().
  void verify();

 private:
  // Where a value lies in the file.
  struct Range {
    uint64_t begin, length;
  };
  Range find(uint64_t id);

  const Storage storage_;
  const uint32_t width_;
  PagedFile file_;
};

}  // namespace fastload
