// index.fli, memory-mapped: one 32-byte entry a record, and its key (layout: FORMAT.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "io/mapping.h"

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

// Safe to use from many threads. A page's CRC-32C is checked when a value on it is first used, so
// opening costs the same for a thousand and for a billion records.
class Index {
 public:
  // Maps the file and checks header, sizes and page table. Throws Error(kIo, kFormat, kTruncated,
  // kChecksum) naming the path.
  explicit Index(const std::string& path);
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  [[nodiscard]] uint64_t size() const { return num_records_; }
  // CRC-32C of header and page table: identifies the whole file's contents.
  [[nodiscard]] uint32_t digest() const { return digest_; }
  // The entry of sample `id`. Throws Error(kValue) if id >= size(), Error(kChecksum).
  const Record& record(uint64_t id);
  // All entries, checked; pages of the whole table are read.
  std::span<const Record> records();
  // The record's name in the source, UTF-8; the view lives as long as the index.
  std::string_view key(uint64_t id);
  // Checks every page. Throws Error(kChecksum).
  void verify();
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  void check_range(uint64_t begin, uint64_t end);
  void check_page(uint64_t page);

  [[noreturn]] void damaged(const std::string& what) const;
  void check_header();

  std::string path_;
  Mapping file_;
  uint64_t num_records_ = 0;
  uint64_t data_offset_ = 0, data_size_ = 0, page_bytes_ = 0;
  uint64_t key_offsets_ = 0, key_bytes_ = 0, pages_offset_ = 0;
  uint32_t digest_ = 0;
  std::unique_ptr<std::atomic<uint8_t>[]> checked_;  // one flag a page
};

}  // namespace fastload
