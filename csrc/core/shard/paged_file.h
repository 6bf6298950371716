// A checksummed table file: a header, a data region, and one CRC-32C for each page of the region. A
// page is checked, and on a network file system read, when a value on it is first used, so opening
// costs the same for a thousand and for a billion records. index.fli, entries.fli and the columns
// field-NN.fli are such files (layout: FORMAT.md).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "io/file_bytes.h"
#include "shard/kept.h"

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
  uint32_t spacing;           // entries.fli: pixels between entry points, 0: rows; index.fli: 0;
                              // field-NN.fli: bytes of a value, 0: each has a length of its own
  uint32_t index_digest;      // entries.fli: digest() of the index it belongs to; index.fli: 0
  uint8_t fields_digest[16];  // index.fli; see FORMAT.md
  uint64_t parts_offset;  // entries.fli: file offset of another table, of records' parts; 0: none
  uint32_t part_bytes;    // of a part
  uint8_t reserved[4];
  uint32_t pages_crc;   // CRC-32C of the page table
  uint32_t header_crc;  // CRC-32C of the header before this field
};
static_assert(sizeof(PagedHeader) == 128);

// The file itself, shared by all that read it. Safe to use from many threads.
class TableFile {
 public:
  // Opens the file and checks magic, version, header, sizes and page table; `fixed` bytes a record
  // lie at the beginning of the data region, before the table, which is not looked at without
  // `has_table`. Throws Error(kIo, kFormat, kTruncated, kChecksum) naming the path.
  TableFile(const std::string& path, const char (&magic)[9], uint64_t fixed, bool has_table);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const PagedHeader& header() const { return header_; }
  // CRC-32C of header and page table: identifies the whole file's contents.
  [[nodiscard]] uint32_t digest() const { return digest_; }

  // The file's bytes [begin, begin + length), inside the data region, checked; nullptr where they
  // do not stay in memory (see FileBytes), and read() gives them. Throws Error(kChecksum), and on
  // network file systems Error(kIo, kTruncated).
  const uint8_t* find(uint64_t begin, uint64_t length);
  // Bytes that find() has checked. Throws Error(kIo, kTruncated).
  void read(uint64_t begin, uint64_t length, uint8_t* out) const { file_.read(begin, out, length); }
  // Whether `copy` is a copy of this very file, as far as header and page table tell.
  [[nodiscard]] bool is_same(Bytes copy) const;
  // A page of the data region: file offset, bytes, and what was written as its CRC-32C.
  struct Page {
    uint64_t first, length;
    uint32_t crc32c;
  };
  [[nodiscard]] Page page(uint64_t number) const;
  // The pages [first, last) on which bytes lie.
  struct Range {
    uint64_t first, last;
  };
  [[nodiscard]] Range range(uint64_t begin, uint64_t length) const;
  [[nodiscard]] uint64_t pages() const;
  // Throws Error(kFormat).
  [[noreturn]] void damaged(const std::string& what) const;
  // Whether the last bytes of the file, or of a copy, are what they were: nothing was cut off.
  [[nodiscard]] bool is_whole(const uint8_t* copy) const noexcept {
    uint32_t last = 0;
    std::memcpy(&last, copy + file_.size() - sizeof(last), sizeof(last));
    return last == last_;
  }
  [[nodiscard]] const uint8_t* data() const { return data_; }
  // Throws Error(kTruncated): bytes of the mapped file are gone.
  [[noreturn]] void lost() const;

 private:
  void check_header(const char* magic);
  void check_sizes(uint64_t fixed, bool has_table) const;
  [[nodiscard]] std::string remedy() const;
  bool is_kept(uint64_t number);
  bool check_page(uint64_t number);

  const std::string path_;
  FileBytes file_;
  const uint8_t* data_ = nullptr;  // the file's bytes
  PagedHeader header_{};
  uint32_t digest_ = 0;
  uint32_t last_ = 0;                              // the file's last four bytes
  std::unique_ptr<std::atomic<uint8_t>[]> pages_;  // a page's flags: kKept, kChecked
  std::array<std::mutex, 16> reading_;             // a page is read from the file by one thread
};

// One user's way to the file: by itself, or by the copy in a cache. Safe to use from many threads.
class PagedFile {
 public:
  // Throws as TableFile.
  PagedFile(const std::string& path, const char (&magic)[9], uint64_t fixed, bool has_table = true)
      : file_(std::make_shared<TableFile>(path, magic, fixed, has_table)) {}
  // The same file, for a user of a cache: once that has a complete copy, values come from there:
  // memory, where the file may lie on slow storage. What is damaged in the copy is read from the
  // file. Views are valid as long as this object.
  PagedFile(const PagedFile& file, std::shared_ptr<const KeptTables> cache, Table table);

  [[nodiscard]] const std::string& path() const { return file_->path(); }
  [[nodiscard]] const PagedHeader& header() const { return file_->header(); }
  [[nodiscard]] uint32_t digest() const { return file_->digest(); }
  // As TableFile's.
  [[noreturn]] void damaged(const std::string& what) const { file_->damaged(what); }
  const uint8_t* find(uint64_t begin, uint64_t length);
  void read(uint64_t begin, uint64_t length, uint8_t* out) const {
    file_->read(begin, length, out);
  }
  // The variable-length bytes of a record, by the table: a view of memory that lives as long as
  // this object, or of `scratch`. Throws as find(), and Error(kFormat).
  Bytes variable(uint64_t record, std::vector<uint8_t>& scratch) {
    return variable(header().table_offset, header().bytes_offset, record, scratch);
  }
  // The same by another table in the data region, whose bytes lie at `bytes`.
  Bytes variable(uint64_t table, uint64_t bytes, uint64_t record, std::vector<uint8_t>& scratch);
  // For bytes of find() or variable() that have been used: whether they were the file's.
  bool is_there(Bytes bytes) noexcept;
  // Checks every page. Throws as find().
  void verify() { find(header().data_offset, header().data_size); }
  // The value that lies at `begin`. Throws as find().
  template <typename T>
  T value(uint64_t begin) {
    T value;
    while (const uint8_t* const found = find(begin, sizeof(T))) {
      std::memcpy(&value, found, sizeof(T));
      if (is_there({found, sizeof(T)})) return value;  // else find() says so, or finds the file
    }
    read(begin, sizeof(T), reinterpret_cast<uint8_t*>(&value));
    return value;
  }

 private:
  const uint8_t* copy();
  bool check(const uint8_t* copy, uint64_t begin, uint64_t length);

  const std::shared_ptr<TableFile> file_;
  const std::shared_ptr<const KeptTables> cache_;  // nullptr: none
  const Table table_ = Table::kIndex;              // which of its copies
  std::atomic<const uint8_t*> copy_{nullptr};      // its first byte; nullptr: not used
  std::atomic<bool> awaited_{false};               // the copy was not there when it was looked for
  std::unique_ptr<std::atomic<bool>[]> checked_;   // by page of the copy
};

}  // namespace fastload
