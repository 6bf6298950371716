// A memory-mapped, checksummed table file: a header, a data region, and one CRC-32C for each page
// of the region. A page is checked when a value on it is first used, so opening costs the same for
// a thousand and for a billion records. index.fli and entries.fli are such files (layout:
// FORMAT.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "io/mapping.h"

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

  // The file's bytes [begin, begin + length), inside the data region, checked. Throws
  // Error(kChecksum).
  const uint8_t* checked(uint64_t begin, uint64_t length);
  // The variable-length bytes of a record, by the table. Throws Error(kFormat, kChecksum).
  Bytes variable(uint64_t record);
  // Checks every page. Throws Error(kChecksum).
  void verify();

 private:
  [[noreturn]] void damaged(const std::string& what) const;
  void check_header(const char* magic);
  void check_sizes(uint64_t fixed) const;
  void check_page(uint64_t page);

  std::string path_;
  Mapping file_;
  PagedHeader header_{};
  uint32_t digest_ = 0;
  std::unique_ptr<std::atomic<uint8_t>[]> checked_;  // one flag a page
};

}  // namespace fastload
