// A checksummed table file: a header, a data region, and one CRC-32C for each page of the region. A
// page is checked, and on a network file system read, when a value on it is first used, so opening
// costs the same for a thousand and for a billion records. index.fli and entries.fli are such files
// (layout: FORMAT.md).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "io/file_bytes.h"
#include "shard/cache_file.h"

namespace fastload {

// The part of the header that both files share, as it lies in the file (little-endian).
struct PagedHeader {
  char magic[8];
  uint16_t major, minor;
  uint32_t header_bytes;
  uint64_t num_records;
  uint64_t data_offset, data_size, page_bytes;
  uint64_t table_offset;  // file offset of num_records + 1 uint64: where each record's bytes begin
  uint64_t bytes_offset;  // file offset of those bytes
  uint64_t pages_offset;  // file offset of one uint32 CRC-32C a page of the data region
  uint64_t file_size;
  uint32_t spacing;       // entries.fli: pixels between entry points, 0: rows; index.fli: 0
  uint32_t index_digest;  // entries.fli: digest() of the index it belongs to; index.fli: 0
  uint8_t reserved[32];
  uint32_t pages_crc;   // CRC-32C of the page table
  uint32_t header_crc;  // CRC-32C of the header before this field
};
static_assert(sizeof(PagedHeader) == 128);

// Safe to use from many threads.
class PagedFile {
 public:
  // Maps the file and checks magic, version, header, sizes and page table; `fixed` bytes a record
  // lie at the beginning of the data region, before the table. Throws Error(kIo, kFormat,
  // kTruncated, kChecksum) naming the path.
  PagedFile(const std::string& path, const char (&magic)[9], uint64_t fixed);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const PagedHeader& header() const { return header_; }
  // CRC-32C of header and page table: identifies the whole file's contents.
  [[nodiscard]] uint32_t digest() const { return digest_; }

  // Once the cache has a complete copy of this file, values come from there: memory, where the file
  // may lie on slow storage. What is damaged in the copy is read from the file.
  void attach(std::shared_ptr<CacheFile> cache);

  // The file's bytes [begin, begin + length), inside the data region, checked. Throws
  // Error(kChecksum), and on network file systems Error(kIo, kTruncated).
  const uint8_t* checked(uint64_t begin, uint64_t length);
  // The variable-length bytes of a record, by the table. Throws as checked(), and Error(kFormat).
  Bytes variable(uint64_t record);
  // Checks every page. Throws as checked().
  void verify();

 private:
  [[noreturn]] void damaged(const std::string& what) const;
  void check_header(const char* magic);
  void check_sizes(uint64_t fixed) const;
  bool check_page(const uint8_t* base, uint64_t page);
  const uint8_t* base();
  bool is_same(Bytes copy) const;

  std::string path_;
  const CacheFile::Table table_;  // which file it is
  FileBytes file_;
  const uint8_t* own_ = nullptr;  // the file's bytes
  PagedHeader header_{};
  uint32_t digest_ = 0;
  std::unique_ptr<std::atomic<uint8_t>[]> checked_;  // a page's flags: kOwn, kCopy
  std::array<std::mutex, 16> reading_;               // a page is read from the file by one thread

  std::atomic<const uint8_t*> base_{nullptr};  // own_, or the cache's copy of it
  std::atomic<CacheFile*> awaited_{nullptr};   // has no copy that was tried yet
  std::mutex attaching_;  // guards the following, which live as long as views of them may
  std::vector<std::shared_ptr<CacheFile>> attached_;
};

}  // namespace fastload
