#include "shard/index.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "base/error.h"

namespace fastload {
namespace {

// The header, as it lies in the file (little-endian); FORMAT.md, "index.fli".
struct Header {
  char magic[8];
  uint16_t major, minor;
  uint32_t header_bytes;
  uint64_t num_records;
  uint64_t data_offset, data_size, page_bytes;
  uint64_t key_offsets, key_bytes, pages_offset, file_size;
  uint8_t reserved[40];
  uint32_t pages_crc, header_crc;
};
static_assert(sizeof(Header) == 128);

constexpr uint64_t kMaxPageBytes = 1 << 24;

uint64_t page_count(uint64_t data_size, uint64_t page_bytes) {
  return data_size / page_bytes + (data_size % page_bytes != 0);
}

}  // namespace

void Index::damaged(const std::string& what) const {
  throw Error(ErrorKind::kFormat,
              path_ + " is not a valid index: " + what +
                  ". Restore the file, or build it again with 'fastload index'.");
}

Index::Index(const std::string& path) : path_(path), file_(path) {
  check_header();
  const uint64_t pages = page_count(data_size_, page_bytes_);
  checked_ = std::make_unique<std::atomic<uint8_t>[]>(pages);
}

void Index::check_header() {
  const Bytes bytes = file_.bytes();
  Header h{};
  if (bytes.size() < sizeof(h)) damaged("it has " + std::to_string(bytes.size()) + " bytes");
  std::memcpy(&h, bytes.data(), sizeof(h));
  if (std::memcmp(h.magic, "FLINDEX1", 8) != 0) damaged("its first 8 bytes are not FLINDEX1");
  if (crc32c(bytes.first(sizeof(h) - 4)) != h.header_crc) {
    throw Error(ErrorKind::kChecksum, path_ + ": the header's CRC-32C differs. Restore the file.");
  }
  if (h.major != 1) {
    damaged("format version " + std::to_string(h.major) + ", this fastload reads 1 (upgrade it)");
  }
  if (h.file_size != bytes.size()) {
    throw Error(ErrorKind::kTruncated, path_ + " has " + std::to_string(bytes.size()) +
                                           " bytes, its header says " +
                                           std::to_string(h.file_size) + ". Restore the file.");
  }
  // Every size is bounded by the file's before it is used in a product or a sum.
  const uint64_t size = h.file_size;
  if (h.header_bytes != sizeof(h) || h.data_offset < sizeof(h) || h.data_offset > size ||
      h.data_offset % 64 != 0 || h.data_size > size - h.data_offset) {
    damaged("the data region lies outside the file");
  }
  const uint64_t data_end = h.data_offset + h.data_size;
  if (h.page_bytes == 0 || h.page_bytes > kMaxPageBytes) damaged("page size out of range");
  const uint64_t pages = page_count(h.data_size, h.page_bytes);
  if (h.pages_offset != data_end || size - data_end != pages * sizeof(uint32_t)) {
    damaged("the page table has the wrong place or size");
  }
  if (h.num_records > h.data_size / sizeof(Record) ||
      h.key_offsets < h.data_offset + h.num_records * sizeof(Record) || h.key_offsets > data_end ||
      h.key_offsets % 8 != 0 || (data_end - h.key_offsets) / 8 < h.num_records + 1 ||
      h.key_bytes < h.key_offsets + (h.num_records + 1) * 8 || h.key_bytes > data_end) {
    damaged("the key tables lie outside the data region");
  }
  const Bytes table = bytes.subspan(data_end);
  if (crc32c(table) != h.pages_crc) {
    throw Error(ErrorKind::kChecksum,
                path_ + ": the page table's CRC-32C differs. Restore the file.");
  }
  num_records_ = h.num_records;
  data_offset_ = h.data_offset;
  data_size_ = h.data_size;
  page_bytes_ = h.page_bytes;
  key_offsets_ = h.key_offsets;
  key_bytes_ = h.key_bytes;
  pages_offset_ = h.pages_offset;
  digest_ = crc32c(table, crc32c(bytes.first(sizeof(h))));
}

void Index::check_page(uint64_t page) {
  const uint64_t begin = page * page_bytes_;
  const uint64_t length = std::min(page_bytes_, data_size_ - begin);
  const Bytes bytes = file_.bytes();
  uint32_t expected = 0;
  std::memcpy(&expected, bytes.data() + pages_offset_ + page * sizeof(expected), sizeof(expected));
  const uint32_t found = crc32c(bytes.subspan(data_offset_ + begin, length));
  if (found != expected) {
    throw Error(ErrorKind::kChecksum,
                path_ + ": bytes " + std::to_string(data_offset_ + begin) + " to " +
                    std::to_string(data_offset_ + begin + length) + " have CRC-32C " +
                    std::to_string(found) + ", written was " + std::to_string(expected) +
                    ". Restore the file, or build it again with 'fastload index'.");
  }
  checked_[page].store(1, std::memory_order_release);
}

void Index::check_range(uint64_t begin, uint64_t end) {
  const uint64_t last = (end - data_offset_ - 1) / page_bytes_;
  for (uint64_t page = (begin - data_offset_) / page_bytes_; page <= last; ++page) {
    if (checked_[page].load(std::memory_order_acquire) == 0) check_page(page);
  }
}

const Record& Index::record(uint64_t id) {
  if (id >= num_records_) {
    throw Error(ErrorKind::kValue, "Sample id must be below " + std::to_string(num_records_) +
                                       ". Found: " + std::to_string(id) + " (" + path_ + ").");
  }
  const uint64_t begin = data_offset_ + id * sizeof(Record);
  check_range(begin, begin + sizeof(Record));
  // The region is aligned to 64 bytes (checked) in a page-aligned map, so the cast is aligned.
  return *reinterpret_cast<const Record*>(file_.bytes().data() + begin);
}

std::span<const Record> Index::records() {
  if (num_records_ == 0) return {};
  check_range(data_offset_, data_offset_ + num_records_ * sizeof(Record));
  return {reinterpret_cast<const Record*>(file_.bytes().data() + data_offset_), num_records_};
}

std::string_view Index::key(uint64_t id) {
  if (id >= num_records_) (void)record(id);  // throws
  const uint64_t at = key_offsets_ + id * 8;
  check_range(at, at + 16);
  uint64_t range[2];
  std::memcpy(range, file_.bytes().data() + at, sizeof(range));
  const uint64_t available = data_offset_ + data_size_ - key_bytes_;
  if (range[0] > range[1] || range[1] > available) {
    damaged("the key of sample " + std::to_string(id) + " lies outside the key bytes");
  }
  if (range[0] == range[1]) return {};
  check_range(key_bytes_ + range[0], key_bytes_ + range[1]);
  return {reinterpret_cast<const char*>(file_.bytes().data() + key_bytes_ + range[0]),
          range[1] - range[0]};
}

void Index::verify() {
  if (data_size_ > 0) check_range(data_offset_, data_offset_ + data_size_);
}

}  // namespace fastload
