#include "shard/cache_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <system_error>

#include "base/crc32c.h"
#include "base/error.h"
#include "io/file.h"
#include "io/range_claims.h"

namespace fastload {

// All of the process. A forked child would keep a lock alive by its copy of the descriptor.
class OpenCaches {
 public:
  // Never destroyed: a fork may come at any time.
  static OpenCaches& all() {
    static auto* const caches = new OpenCaches;
    return *caches;
  }
  void add(CacheFile* file) {
    const std::lock_guard lock(mutex_);  // no fork between the two
    files_.insert(file);
    file->reserve();
  }
  void remove(CacheFile* file) {
    const std::lock_guard lock(mutex_);
    files_.erase(file);
  }

 private:
  OpenCaches() {
    ::pthread_atfork([] { all().mutex_.lock(); }, [] { all().mutex_.unlock(); },
                     [] { all().forked(); });
  }
  void forked() {
    for (CacheFile* file : files_) {
      const int descriptor = file->descriptor_.exchange(-1);
      if (descriptor >= 0) ::close(descriptor);
      static_cast<void>(file->reservation_.release());  // the thread is the parent's
    }
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::set<CacheFile*> files_;
};

namespace {

uint32_t place_crc(const CacheEntry& entry, uint64_t id) noexcept {
  uint8_t bytes[24];
  std::memcpy(bytes, &entry, 16);
  std::memcpy(bytes + 16, &id, 8);
  return crc32c(bytes);
}

// Whether [offset, offset + length) lies in [begin, end).
bool lies_in(uint64_t offset, uint64_t length, uint64_t begin, uint64_t end) {
  return offset >= begin && offset <= end && length <= end - offset;
}

}  // namespace

void seal_places(CacheEntry* entries, uint64_t count, uint64_t first) noexcept {
  for (uint64_t i = 0; i < count; ++i) entries[i].place_crc = place_crc(entries[i], first + i);
}

CacheFile::CacheFile(int descriptor, std::string path)
    : descriptor_(descriptor), path_(std::move(path)) {
  try {
    map();
    check_header();
    check_regions();
  } catch (...) {
    unmap();
    ::close(descriptor);
    throw;
  }
  table_ = reinterpret_cast<CacheEntry*>(data_ + header_.table_offset);
  OpenCaches::all().add(this);
}

CacheFile::~CacheFile() {
  OpenCaches::all().remove(this);
  reservation_.reset();
  unmap();
  const int descriptor = descriptor_.exchange(-1);
  if (descriptor >= 0) ::close(descriptor);
}

void CacheFile::unmap() noexcept {
  if (data_ != nullptr) ::munmap(data_, mapped_);
  data_ = nullptr;
}

void CacheFile::damaged(const std::string& what) const {
  throw Error(ErrorKind::kFormat, path_ + " is not a valid cache: " + what +
                                      ". Remove it with 'fastload cache clear'.");
}

// By another open file description than the descriptor's: see above.
void CacheFile::map() {
  const int flags = ::fcntl(descriptor_, F_GETFL);
  if (flags < 0) throw_system_error("cannot attach", path_);
  writable_ = (flags & O_ACCMODE) == O_RDWR;
  const int other = ::open(path_.c_str(), (writable_ ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC);
  if (other < 0) throw_system_error("cannot open", path_);
  struct stat locked {
  }, found{};
  const bool known = ::fstat(descriptor_, &locked) == 0 && ::fstat(other, &found) == 0;
  if (!known || locked.st_dev != found.st_dev || locked.st_ino != found.st_ino) {
    ::close(other);
    throw Error(ErrorKind::kIo, path_ + " was replaced while it was opened. Try again.");
  }
  mapped_ = static_cast<uint64_t>(found.st_size);
  void* address = MAP_FAILED;
  if (mapped_ >= kCacheHeaderBytes + kCacheLiveBytes) {
    address = ::mmap(nullptr, mapped_, PROT_READ, MAP_SHARED, other, 0);
  } else {
    errno = ENODATA;
  }
  ::close(other);
  if (address == MAP_FAILED) throw_system_error("cannot map", path_);
  data_ = static_cast<uint8_t*>(address);
}

void CacheFile::check_header() {
  std::memcpy(&header_, data_, sizeof(header_));
  if (std::memcmp(header_.magic, "FLCACHE1", 8) != 0) damaged("its first 8 bytes are not FLCACHE1");
  uint32_t expected = 0;
  constexpr uint64_t kChecked = kCacheHeaderBytes - sizeof(expected);
  std::memcpy(&expected, data_ + kChecked, sizeof(expected));
  if (header_.header_bytes != kCacheHeaderBytes || crc32c({data_, kChecked}) != expected) {
    throw Error(ErrorKind::kChecksum, path_ +
                                          ": the header's CRC-32C differs. Remove it with "
                                          "'fastload cache clear'.");
  }
  if (header_.major != 1) {
    damaged("format version " + std::to_string(header_.major) + ", this fastload reads 1");
  }
  if (header_.file_size != mapped_) {
    throw Error(ErrorKind::kTruncated,
                path_ + " has " + std::to_string(mapped_) + " bytes, its header says " +
                    std::to_string(header_.file_size) + ". Remove it with 'fastload cache clear'.");
  }
}

// The table is what will be written to by words, so it needs whole pages of its own.
void CacheFile::check_regions() const {
  const CacheHeader& h = header_;
  const uint64_t begin = kCacheHeaderBytes + kCacheLiveBytes, end = h.file_size;
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  if (h.num_records > end / sizeof(CacheEntry) ||
      !lies_in(h.table_offset, h.num_records * sizeof(CacheEntry), begin, end) ||
      h.table_offset % sizeof(CacheEntry) != 0) {
    damaged("its table lies outside the file");
  }
  if (!lies_in(h.index_offset, h.index_size, begin, end) ||
      !lies_in(h.entries_offset, h.entries_size, begin, end) ||
      !lies_in(h.data_offset, h.data_size, begin, end)) {
    damaged("a region lies outside the file");
  }
  if (!writable_) return;
  const uint64_t first = kCacheHeaderBytes / page * page;
  const uint64_t last = h.table_offset + h.num_records * sizeof(CacheEntry);
  if (::mprotect(data_ + first, last - first, PROT_READ | PROT_WRITE) != 0) {
    throw_system_error("cannot map for writing", path_);
  }
}

void CacheFile::reserve() {
  if (!writable_ || std::atomic_ref(live().reserved).load() >= mapped_) return;
  reservation_ = std::make_unique<Reservation>(descriptor_, mapped_, live().reserved);
}

CacheLive& CacheFile::live() const noexcept {
  return *reinterpret_cast<CacheLive*>(data_ + kCacheHeaderBytes);
}

CacheFile::Place CacheFile::place(uint64_t id) const noexcept {
  if (id >= size()) return {};
  CacheEntry entry{};
  std::memcpy(&entry, &table_[id], 20);  // what never changes
  if (entry.offset == kNoRoom || entry.place_crc != place_crc(entry, id) ||
      !lies_in(entry.offset, entry.length, header_.data_offset,
               header_.data_offset + header_.data_size)) {
    return {};
  }
  return {entry.offset, entry.length, entry.width, entry.height};
}

CacheFile::Found CacheFile::look(uint64_t id) const noexcept {
  if (!is_ready(id)) return {};
  const Place place = this->place(id);
  const uint32_t crc = std::atomic_ref(table_[id].crc32c).load(std::memory_order_relaxed);
  return {{data_ + place.offset, place.length}, crc, place.width, place.height};
}

bool CacheFile::write(uint64_t offset, Bytes bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t done =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done == 0) errno = ENOSPC;
    if (done <= 0) return false;
    offset += static_cast<uint64_t>(done);
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
  return true;
}

void CacheFile::store(uint64_t id, Bytes bytes, uint32_t crc) noexcept {
  if (!is_writable() || is_ready(id)) return;
  const Place place = this->place(id);
  if (place.length == 0 || place.length != bytes.size()) return;
  if (!write(place.offset, bytes)) {
    write_error_ = errno;
    add(failed_, 1);
    return;
  }
  std::atomic_ref(table_[id].crc32c).store(crc, std::memory_order_relaxed);
  if (state(id).exchange(1, std::memory_order_acq_rel) == 1) return;  // somebody else's, the same
  add(stored_, 1);
  add_ready(1, place.length);
}

void CacheFile::check_stored(uint64_t id) const {
  if (is_ready(id)) return;
  const int error = write_error_;
  const std::string reason =
      error == 0 ? ". Is the file writable, and of this set?"
                 : ": " + std::generic_category().message(error) +
                       ". Others have taken the memory: 'df' and 'fastload cache ls' show what is "
                       "held.";
  throw Error(ErrorKind::kIo,
              "sample " + std::to_string(id) + " cannot be written to " + path_ + reason);
}

void CacheFile::reject(uint64_t id) noexcept {
  add(damaged_, 1);
  uint32_t ready = 1;
  if (!is_writable() || !state(id).compare_exchange_strong(ready, 0)) return;
  add_ready(-1, -static_cast<int64_t>(place(id).length));
}

void CacheFile::add_ready(int64_t records, int64_t bytes) noexcept {
  std::atomic_ref(live().ready_records)
      .fetch_add(static_cast<uint64_t>(records), std::memory_order_relaxed);
  std::atomic_ref(live().ready_bytes)
      .fetch_add(static_cast<uint64_t>(bytes), std::memory_order_relaxed);
}

bool CacheFile::claim(uint64_t begin, uint64_t end) noexcept {
  return end > begin && is_writable() && lock_range(descriptor_, begin, end);
}

void CacheFile::release(uint64_t begin, uint64_t end) noexcept {
  if (end > begin && is_writable()) unlock_range(descriptor_, begin, end);
}

Bytes CacheFile::copy(Table table) const noexcept {
  const auto which = static_cast<size_t>(table);
  if (std::atomic_ref(live().copied[which]).load(std::memory_order_acquire) != 1) return {};
  const auto [offset, size] = copy_range(table);
  return {data_ + offset, size};
}

std::pair<uint64_t, uint64_t> CacheFile::copy_range(Table table) const noexcept {
  if (table == Table::kIndex) return {header_.index_offset, header_.index_size};
  return {header_.entries_offset, header_.entries_size};
}

bool CacheFile::write_copy(Table table, uint64_t offset, Bytes bytes) noexcept {
  const auto [begin, size] = copy_range(table);
  if (!is_writable() || !lies_in(offset, bytes.size(), 0, size)) return false;
  if (!write(begin + offset, bytes)) return false;
  if (offset + bytes.size() == size) {
    const auto which = static_cast<size_t>(table);
    std::atomic_ref(live().copied[which]).store(1, std::memory_order_release);
  }
  return true;
}

CacheFile::Stripe& CacheFile::stripe() noexcept {
  static std::atomic<size_t> threads{0};
  thread_local const size_t mine = threads.fetch_add(1, std::memory_order_relaxed);
  return stripes_[mine % stripes_.size()];
}

CacheFile::Counts CacheFile::counts() const {
  Counts counts;
  for (const Stripe& stripe : stripes_) {
    counts.hits += stripe.hits;
    counts.misses += stripe.misses;
  }
  counts.stored = stored_;
  counts.damaged = damaged_;
  counts.failed = failed_;
  counts.ready_records = std::atomic_ref(live().ready_records).load();
  counts.ready_bytes = std::atomic_ref(live().ready_bytes).load();
  counts.reserved_bytes = std::min(mapped_, std::atomic_ref(live().reserved).load());
  return counts;
}

uint64_t CacheFile::count_ready() const noexcept {
  uint64_t ready = 0;
  for (uint64_t id = 0; id < size(); ++id) ready += is_ready(id) ? 1 : 0;
  return ready;
}

}  // namespace fastload
