#include "shard/paged_file.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "base/error.h"

namespace fastload {
namespace {

constexpr uint64_t kMaxPageBytes = 1 << 24;
constexpr uint8_t kOwn = 1, kCopy = 2;  // checked in the file, in the cache's copy

uint64_t page_count(uint64_t data_size, uint64_t page_bytes) {
  return data_size / page_bytes + (data_size % page_bytes != 0);
}

}  // namespace

void PagedFile::damaged(const std::string& what) const {
  throw Error(ErrorKind::kFormat,
              path_ + " is not valid: " + what +
                  ". Restore the file, or build it again with 'fastload index'.");
}

PagedFile::PagedFile(const std::string& path, const char (&magic)[9], uint64_t fixed)
    : path_(path),
      table_(std::memcmp(magic, "FLINDEX1", 8) == 0 ? CacheFile::Table::kIndex
                                                    : CacheFile::Table::kEntries),
      file_(path),
      own_(file_.at(0, 0).data()) {
  check_header(magic);
  check_sizes(fixed);
  const Bytes table = file_.at(header_.pages_offset, file_.size() - header_.pages_offset);
  file_.need(header_.pages_offset, table.size());
  if (crc32c(table) != header_.pages_crc) {
    throw Error(ErrorKind::kChecksum,
                path_ + ": the page table's CRC-32C differs. Restore the file.");
  }
  digest_ = crc32c(table, crc32c(file_.at(0, sizeof(header_))));
  checked_ =
      std::make_unique<std::atomic<uint8_t>[]>(page_count(header_.data_size, header_.page_bytes));
  base_ = own_;
}

void PagedFile::attach(std::shared_ptr<CacheFile> cache) {
  const std::lock_guard lock(attaching_);
  if (base_ != own_) return;  // it has a copy
  attached_.push_back(std::move(cache));
  awaited_.store(attached_.back().get(), std::memory_order_release);
}

// Whether it is a copy of this very file, as far as header and page table tell; pages are checked
// when they are used.
bool PagedFile::is_same(Bytes copy) const {
  if (copy.size() != file_.size()) return false;
  const uint64_t table = header_.pages_offset;
  return std::memcmp(copy.data(), own_, sizeof(header_)) == 0 &&
         std::memcmp(copy.data() + table, own_ + table, copy.size() - table) == 0;
}

const uint8_t* PagedFile::base() {
  CacheFile* cache = awaited_.load(std::memory_order_acquire);
  if (cache == nullptr) [[likely]]
    return base_.load(std::memory_order_acquire);
  const Bytes copy = cache->copy(table_);
  if (!copy.empty() && awaited_.compare_exchange_strong(cache, nullptr)) {
    if (is_same(copy)) base_.store(copy.data(), std::memory_order_release);
  }
  return base_.load(std::memory_order_acquire);
}

void PagedFile::check_header(const char* magic) {
  const uint64_t size = file_.size();
  if (size < sizeof(header_)) damaged("it has " + std::to_string(size) + " bytes");
  file_.need(0, sizeof(header_));
  const Bytes bytes = file_.at(0, sizeof(header_));
  std::memcpy(&header_, bytes.data(), sizeof(header_));
  if (std::memcmp(header_.magic, magic, 8) != 0)
    damaged("its first 8 bytes are not " + std::string(magic));
  if (crc32c(bytes.first(sizeof(header_) - 4)) != header_.header_crc) {
    throw Error(ErrorKind::kChecksum, path_ + ": the header's CRC-32C differs. Restore the file.");
  }
  if (header_.major != 1) {
    damaged("format version " + std::to_string(header_.major) +
            ", this fastload reads 1 (upgrade it)");
  }
  if (header_.file_size != size) {
    throw Error(ErrorKind::kTruncated,
                path_ + " has " + std::to_string(size) + " bytes, its header says " +
                    std::to_string(header_.file_size) + ". Restore the file.");
  }
}

// Every size is bounded by the file's before it is used in a product or a sum.
void PagedFile::check_sizes(uint64_t fixed) const {
  const PagedHeader& h = header_;
  const uint64_t size = h.file_size;
  if (h.header_bytes != sizeof(h) || h.data_offset < sizeof(h) || h.data_offset > size ||
      h.data_offset % 64 != 0 || h.data_size > size - h.data_offset) {
    damaged("the data region lies outside the file");
  }
  const uint64_t data_end = h.data_offset + h.data_size;
  if (h.page_bytes == 0 || h.page_bytes > kMaxPageBytes) damaged("page size out of range");
  if (h.pages_offset != data_end ||
      size - data_end != page_count(h.data_size, h.page_bytes) * sizeof(uint32_t)) {
    damaged("the page table has the wrong place or size");
  }
  if (h.num_records > h.data_size / (fixed + 8) ||
      h.table_offset < h.data_offset + h.num_records * fixed || h.table_offset > data_end ||
      h.table_offset % 8 != 0 || (data_end - h.table_offset) / 8 < h.num_records + 1 ||
      h.bytes_offset < h.table_offset + (h.num_records + 1) * 8 || h.bytes_offset > data_end) {
    damaged("its tables lie outside the data region");
  }
}

// False where the copy's page is damaged. Throws Error(kChecksum) where the file's is.
bool PagedFile::check_page(const uint8_t* base, uint64_t page) {
  const bool own = base == own_;
  std::unique_lock<std::mutex> lock;
  if (own) {
    lock = std::unique_lock(reading_[page % reading_.size()]);
    if ((checked_[page].load(std::memory_order_acquire) & kOwn) != 0) return true;
  }
  const uint64_t begin = page * header_.page_bytes;
  const uint64_t length = std::min(header_.page_bytes, header_.data_size - begin);
  uint32_t expected = 0;
  std::memcpy(&expected, base + header_.pages_offset + page * sizeof(expected), sizeof(expected));
  const uint64_t first = header_.data_offset + begin;
  if (own) file_.need(first, length);
  const uint32_t found = crc32c({base + first, length});
  if (found == expected) {
    checked_[page].fetch_or(own ? kOwn : kCopy, std::memory_order_release);
    return true;
  }
  if (!own) return false;
  throw Error(ErrorKind::kChecksum,
              path_ + ": bytes " + std::to_string(first) + " to " + std::to_string(first + length) +
                  " have CRC-32C " + std::to_string(found) + ", written was " +
                  std::to_string(expected) +
                  ". Restore the file, or build it again with 'fastload index'.");
}

const uint8_t* PagedFile::checked(uint64_t begin, uint64_t length) {
  const uint8_t* base = this->base();
  if (length == 0) return base + begin;
  const uint64_t first = (begin - header_.data_offset) / header_.page_bytes;
  const uint64_t last = (begin + length - 1 - header_.data_offset) / header_.page_bytes;
  for (uint64_t page = first; page <= last; ++page) {
    const uint8_t flag = base == own_ ? kOwn : kCopy;
    if ((checked_[page].load(std::memory_order_acquire) & flag) != 0) continue;
    if (check_page(base, page)) continue;
    base_.store(own_, std::memory_order_release);  // for good: somebody writes into the copy
    base = own_;
    page = first - 1;  // again, from the beginning
  }
  return base + begin;
}

Bytes PagedFile::variable(uint64_t record) {
  uint64_t range[2];
  std::memcpy(range, checked(header_.table_offset + record * 8, sizeof(range)), sizeof(range));
  const uint64_t available = header_.data_offset + header_.data_size - header_.bytes_offset;
  if (range[0] > range[1] || range[1] > available) {
    damaged("the table's entry of sample " + std::to_string(record) + " lies outside the file");
  }
  return {checked(header_.bytes_offset + range[0], range[1] - range[0]), range[1] - range[0]};
}

void PagedFile::verify() { checked(header_.data_offset, header_.data_size); }

}  // namespace fastload
