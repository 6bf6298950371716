#include "shard/paged_file.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "base/error.h"
#include "io/guarded_range.h"

namespace fastload {
namespace {

constexpr uint64_t kMaxPageBytes = 1 << 24;
constexpr uint8_t kKept = 1, kChecked = 2;  // a page stays in memory, its CRC-32C is right

uint64_t page_count(uint64_t data_size, uint64_t page_bytes) {
  return data_size / page_bytes + (data_size % page_bytes != 0);
}

}  // namespace

void TableFile::damaged(const std::string& what) const {
  throw Error(ErrorKind::kFormat,
              path_ + " is not valid: " + what + ". Restore the file, or " + remedy() + ".");
}

// What makes such a file anew.
std::string TableFile::remedy() const {
  const bool column = std::memcmp(header_.magic, "FLFIELD1", sizeof(header_.magic)) == 0;
  return column ? "pack again" : "build it again with 'fastload index'";
}

TableFile::TableFile(const std::string& path, const char (&magic)[9], uint64_t fixed,
                     bool has_table)
    : path_(path), file_(open_file(path)), data_(file_.at(0, 0).data()) {
  check_header(magic);
  check_sizes(fixed, has_table);
  const Bytes table = file_.at(header_.pages_offset, file_.size() - header_.pages_offset);
  file_.need(header_.pages_offset, table.size());
  if (crc32c(table) != header_.pages_crc) {
    throw Error(ErrorKind::kChecksum,
                path_ + ": the page table's CRC-32C differs. Restore the file.");
  }
  digest_ = crc32c(table, crc32c(file_.at(0, sizeof(header_))));
  std::memcpy(&last_, data_ + file_.size() - sizeof(last_), sizeof(last_));
  pages_ = std::make_unique<std::atomic<uint8_t>[]>(pages());
}

uint64_t TableFile::pages() const { return page_count(header_.data_size, header_.page_bytes); }

bool TableFile::is_same(Bytes copy) const {
  if (copy.size() != file_.size()) return false;
  const uint64_t table = header_.pages_offset;
  return std::memcmp(copy.data(), data_, sizeof(header_)) == 0 &&
         std::memcmp(copy.data() + table, data_ + table, copy.size() - table) == 0;
}

void TableFile::check_header(const char* magic) {
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
void TableFile::check_sizes(uint64_t fixed, bool has_table) const {
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
  if (!has_table) {
    if (h.num_records > h.data_size / fixed) damaged("its values lie outside the data region");
    return;
  }
  if (h.num_records > h.data_size / (fixed + 8) ||
      h.table_offset < h.data_offset + h.num_records * fixed || h.table_offset > data_end ||
      h.table_offset % 8 != 0 || (data_end - h.table_offset) / 8 < h.num_records + 1 ||
      h.bytes_offset < h.table_offset + (h.num_records + 1) * 8 || h.bytes_offset > data_end) {
    damaged("its tables lie outside the data region");
  }
}

TableFile::Page TableFile::page(uint64_t number) const {
  const uint64_t begin = number * header_.page_bytes;
  Page page{header_.data_offset + begin, std::min(header_.page_bytes, header_.data_size - begin),
            0};
  std::memcpy(&page.crc32c, data_ + header_.pages_offset + number * sizeof(page.crc32c),
              sizeof(page.crc32c));
  return page;
}

// Whether the page stays in memory; it is checked then, and also if not. What was read from a file
// that has been opened again since is no matter, where it was kept; else it may be another's.
bool TableFile::is_kept(uint64_t number) {
  const uint8_t flags = pages_[number].load(std::memory_order_acquire);
  if ((flags & kChecked) == 0) return check_page(number);
  return (flags & kKept) != 0 || (file_.is_changed() && check_page(number));
}

bool TableFile::check_page(uint64_t number) {
  const std::lock_guard lock(reading_[number % reading_.size()]);
  std::atomic<uint8_t>& flags = pages_[number];
  const Page page = this->page(number);
  uint8_t state = flags.load(std::memory_order_acquire);
  if (state == 0 && file_.keep(page.length)) {
    state = kKept;
    flags.store(state, std::memory_order_relaxed);
  }
  const bool kept = (state & kKept) != 0;
  if ((state & kChecked) != 0 && (kept || !file_.is_changed())) return kept;  // by another thread
  std::vector<uint8_t> passing;
  if (kept) {
    file_.need(page.first, page.length);
  } else {
    passing.resize(page.length);
    file_.read(page.first, passing.data(), page.length);
  }
  const uint32_t found = crc32c({kept ? data_ + page.first : passing.data(), page.length});
  if (kept && is_lost({data_ + page.first, page.length})) lost();
  if (found != page.crc32c) {
    throw Error(ErrorKind::kChecksum, path_ + ": bytes " + std::to_string(page.first) + " to " +
                                          std::to_string(page.first + page.length) +
                                          " have CRC-32C " + std::to_string(found) +
                                          ", written was " + std::to_string(page.crc32c) +
                                          ". Restore the file, or " + remedy() + ".");
  }
  flags.fetch_or(kChecked, std::memory_order_release);
  return kept;
}

TableFile::Range TableFile::range(uint64_t begin, uint64_t length) const {
  if (length == 0) return {0, 0};
  return {(begin - header_.data_offset) / header_.page_bytes,
          (begin + length - 1 - header_.data_offset) / header_.page_bytes + 1};
}

const uint8_t* TableFile::find(uint64_t begin, uint64_t length) {
  const auto [first, last] = range(begin, length);
  bool kept = true;
  for (uint64_t number = first; number < last; ++number) kept &= is_kept(number);
  if (!kept) return nullptr;
  if (!is_whole(data_)) mark_lost({data_, file_.size()});
  if (is_lost({data_ + begin, length})) lost();
  return data_ + begin;
}

void TableFile::lost() const {
  throw Error(ErrorKind::kTruncated,
              path_ + " was cut while it was in use, or its disk fails. Restore the file, or " +
                  remedy() + ".");
}

PagedFile::PagedFile(const PagedFile& file, std::shared_ptr<const KeptTables> cache, Table table)
    : file_(file.file_),
      cache_(std::move(cache)),
      table_(table),
      awaited_(true),
      checked_(std::make_unique<std::atomic<bool>[]>(file_->pages())) {}

const uint8_t* PagedFile::copy() {
  if (!awaited_.load(std::memory_order_acquire)) [[likely]]
    return copy_.load(std::memory_order_acquire);
  const Bytes bytes = cache_->copy(table_);
  if (!bytes.empty() && awaited_.exchange(false) && file_->is_same(bytes)) {
    copy_.store(bytes.data(), std::memory_order_release);
  }
  return copy_.load(std::memory_order_acquire);
}

// False where a page is damaged.
bool PagedFile::check(const uint8_t* copy, uint64_t begin, uint64_t length) {
  const auto [first, last] = file_->range(begin, length);
  for (uint64_t number = first; number < last; ++number) {
    if (checked_[number].load(std::memory_order_relaxed)) continue;
    const TableFile::Page page = file_->page(number);
    if (crc32c({copy + page.first, page.length}) != page.crc32c) return false;
    checked_[number].store(true, std::memory_order_relaxed);
  }
  return true;
}

const uint8_t* PagedFile::find(uint64_t begin, uint64_t length) {
  const uint8_t* copy = this->copy();
  if (copy != nullptr) {
    if (!file_->is_whole(copy)) mark_lost({copy, 1});
    if (check(copy, begin, length) && !is_lost({copy + begin, length})) return copy + begin;
    copy_.store(nullptr, std::memory_order_release);  // for good: somebody writes into it
  }
  return file_->find(begin, length);
}

bool PagedFile::is_there(Bytes bytes) noexcept {
  const uint8_t* const copy = copy_.load(std::memory_order_acquire);
  if (copy != nullptr && !file_->is_whole(copy)) mark_lost({copy, 1});
  if (!file_->is_whole(file_->data())) mark_lost({file_->data(), 1});
  return !is_lost(bytes);
}

Bytes PagedFile::variable(uint64_t table, uint64_t bytes, uint64_t record,
                          std::vector<uint8_t>& scratch) {
  const auto range = value<std::array<uint64_t, 2>>(table + record * 8);
  const uint64_t available = header().data_offset + header().data_size - bytes;
  if (range[0] > range[1] || range[1] > available) {
    file_->damaged("the table's entry of sample " + std::to_string(record) +
                   " lies outside the file");
  }
  const uint64_t begin = bytes + range[0], length = range[1] - range[0];
  if (const uint8_t* const found = find(begin, length); found != nullptr) return {found, length};
  if (scratch.size() < length) scratch.resize(length);
  read(begin, length, scratch.data());
  return {scratch.data(), length};
}

}  // namespace fastload
