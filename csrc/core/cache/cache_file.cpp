#include "cache/cache_file.h"

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
#include <string_view>
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
    file->reserve();
    files_.insert(file);
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

uint64_t size_of(int descriptor, const std::string& path) {
  struct stat found{};
  if (::fstat(descriptor, &found) != 0) throw_system_error("cannot look at", path);
  return static_cast<uint64_t>(found.st_size);
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
  int again = -1;
  try {
    again = open_again();
    map(again);
    check_regions();
    table_ = reinterpret_cast<CacheEntry*>(data_ + header_.table_offset);
    OpenCaches::all().add(this);
  } catch (...) {
    reservation_.reset();
    if (again >= 0) ::close(again);
    close_all();
    throw;
  }
  ::close(again);
}

CacheFile::~CacheFile() {
  OpenCaches::all().remove(this);
  reservation_.reset();
  close_all();
}

void CacheFile::close_all() noexcept {
  guards_.clear();
  if (data_ != nullptr) ::munmap(data_, header_.file_size);
  data_ = nullptr;
  for (size_t i = 1; i < segments_.size(); ++i) ::close(segments_[i].descriptor);
  segments_.clear();
  const int descriptor = descriptor_.exchange(-1);
  if (descriptor >= 0) ::close(descriptor);
}

void CacheFile::damaged(const std::string& what) const {
  throw Error(ErrorKind::kFormat, path_ + " is not a valid cache: " + what +
                                      ". Remove it with 'fastload cache clear'.");
}

// For the mapping, which shall be of another open file description than the descriptor: see above.
int CacheFile::open_again() const {
  const int flags = ::fcntl(descriptor_, F_GETFL);
  if (flags < 0) throw_system_error("cannot attach", path_);
  const int access = (flags & O_ACCMODE) == O_RDWR ? O_RDWR : O_RDONLY;
  const int again = open_path(path_, access | O_NOFOLLOW | O_CLOEXEC);
  if (again < 0) throw_system_error("cannot open", path_);
  struct stat locked{}, found{};
  if (::fstat(descriptor_, &locked) != 0 || ::fstat(again, &found) != 0) {
    const int error = errno;
    ::close(again);
    errno = error;
    throw_system_error("cannot look at", path_);
  }
  if (locked.st_dev != found.st_dev || locked.st_ino != found.st_ino) {
    ::close(again);
    throw Error(ErrorKind::kIo, path_ + " was replaced while it was opened. Try again.");
  }
  return again;
}

void CacheFile::map(int file) {
  const int flags = ::fcntl(file, F_GETFL);
  writable_ = (flags & O_ACCMODE) == O_RDWR;
  const uint64_t size = size_of(file, path_);
  read_header(file, size);
  open_segments(size);
  // One range of addresses for all: who looks for a record need not know of segments.
  void* const address = ::mmap(nullptr, header_.file_size, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) throw_system_error("cannot map", path_);
  data_ = static_cast<uint8_t*>(address);
  for (const Segment& segment : segments_) {
    map_segment(segment, segment.begin == 0 ? file : segment.descriptor);
    guards_.emplace_back(data_ + segment.begin, segment.end - segment.begin, path_, writable_);
  }
}

void CacheFile::map_segment(const Segment& segment, int file) {
  const void* const address = ::mmap(data_ + segment.begin, segment.end - segment.begin, PROT_READ,
                                     MAP_SHARED | MAP_FIXED, file, 0);
  if (address == MAP_FAILED) throw_system_error("cannot map", path_);
}

void CacheFile::read_header(int file, uint64_t size) {
  std::array<uint8_t, kCacheHeaderBytes> bytes{};
  const auto got = read_up_to(file, bytes, 0);
  if (got < 0) throw_system_error("cannot read", path_);
  if (size < kCacheHeaderBytes + kCacheLiveBytes || got < static_cast<ssize_t>(bytes.size())) {
    throw Error(ErrorKind::kTruncated, path_ + " has only " + std::to_string(size) +
                                           " bytes. Remove it with 'fastload cache clear'.");
  }
  std::memcpy(&header_, bytes.data(), sizeof(header_));
  if (std::memcmp(header_.magic, "FLCACHE1", 8) != 0) damaged("its first 8 bytes are not FLCACHE1");
  uint32_t expected = 0;
  constexpr uint64_t kChecked = kCacheHeaderBytes - sizeof(expected);
  std::memcpy(&expected, bytes.data() + kChecked, sizeof(expected));
  if (header_.header_bytes != kCacheHeaderBytes || crc32c({bytes.data(), kChecked}) != expected) {
    throw Error(ErrorKind::kChecksum, path_ +
                                          ": the header's CRC-32C differs. Remove it with "
                                          "'fastload cache clear'.");
  }
  has_shorter_ = std::string_view(header_.tier, ::strnlen(header_.tier, sizeof(header_.tier))) ==
                 kCoefficientTier;
  if (header_.major != 1) {
    damaged("format version " + std::to_string(header_.major) + ", this fastload reads 1");
  }
}

// The file itself has `size` bytes. While it is in use nobody removes its stripes.
void CacheFile::open_segments(uint64_t size) {
  const uint32_t count = header_.num_stripes;
  if (count > kMaxStripes) damaged(std::to_string(count) + " stripes, at most 8 are legal");
  for (uint32_t i = 0; i <= count; ++i) {
    Segment segment{0, header_.file_size, descriptor_};
    if (i > 0) segment.begin = header_.stripe_offset[i - 1];
    if (i < count) segment.end = header_.stripe_offset[i];
    if (segment.end <= segment.begin || segment.begin % kStripeAlignment != 0) {
      damaged("stripe " + std::to_string(i) + " has no place");
    }
    const std::string path = i == 0 ? path_ : path_ + "." + std::to_string(i - 1);
    if (i > 0) {
      const int access = writable_ ? O_RDWR : O_RDONLY;
      segment.descriptor = open_path(path, access | O_NOFOLLOW | O_CLOEXEC);
      if (segment.descriptor < 0) throw_system_error("cannot open", path);
    }
    segments_.push_back(segment);
    const uint64_t found = i == 0 ? size : size_of(segment.descriptor, path);
    if (found == segment.end - segment.begin) continue;
    throw Error(ErrorKind::kTruncated, path + " has " + std::to_string(found) +
                                           " bytes, the header says " +
                                           std::to_string(segment.end - segment.begin) +
                                           ". Remove it with 'fastload cache clear'.");
  }
}

// The table is what will be written to by words, so it needs whole pages of its own.
void CacheFile::check_regions() {
  const CacheHeader& h = header_;
  const uint64_t begin = kCacheHeaderBytes + kCacheLiveBytes, end = segments_.front().end;
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  if (h.num_records > end / sizeof(CacheEntry) ||
      !lies_in(h.table_offset, h.num_records * sizeof(CacheEntry), begin, end) ||
      h.table_offset % sizeof(CacheEntry) != 0) {
    damaged("its table lies outside the file");
  }
  if (!lies_in(h.index_offset, h.index_size, begin, end) ||
      !lies_in(h.entries_offset, h.entries_size, begin, end) ||
      !lies_in(h.data_offset, h.data_size, begin, h.file_size)) {
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
  if (!writable_ || std::atomic_ref(live().reserved).load() >= header_.file_size) return;
  reservation_ = std::make_unique<Reservation>(segments_, live().reserved);
}

CacheLive& CacheFile::live() const noexcept {
  return *reinterpret_cast<CacheLive*>(data_ + kCacheHeaderBytes);
}

CacheFile::Place CacheFile::place(uint64_t id) const noexcept {
  if (id >= size()) return {};
  CacheEntry entry{};
  std::memcpy(&entry, &table_[id], 20);  // what never changes
  if (entry.offset == kNoRoom || entry.place_crc != place_crc(entry, id) ||
      !lies_in(entry.offset, entry.length, header_.data_offset, header_.file_size)) {
    return {};
  }
  return {entry.offset, entry.length, entry.width, entry.height};
}

// Bytes of what is in the place, once it is ready; 0: the entry is damaged.
uint32_t CacheFile::stored_length(uint64_t id, const Place& place) const noexcept {
  if (!has_shorter_) return place.length;
  const uint32_t length = std::atomic_ref(table_[id].stored).load(std::memory_order_relaxed);
  return length <= place.length ? length : 0;
}

CacheFile::Found CacheFile::look(uint64_t id) const noexcept {
  if (!is_ready(id)) return {};
  const Place place = this->place(id);
  const uint32_t crc = std::atomic_ref(table_[id].crc32c).load(std::memory_order_relaxed);
  const Bytes bytes{data_ + place.offset, stored_length(id, place)};
  if (is_lost(bytes)) return {{}, 0, 0, 0, true};
  return {bytes, crc, place.width, place.height, true};
}

bool CacheFile::is_whole(const Segment& segment) noexcept {
  struct stat found{};
  if (::fstat(segment.descriptor, &found) == 0 &&
      static_cast<uint64_t>(found.st_size) == segment.end - segment.begin) {
    return true;
  }
  cut_ = true;
  errno = EIO;
  return false;
}

bool CacheFile::write(uint64_t offset, Bytes bytes) noexcept {
  const auto behind = [offset](const Segment& segment) { return offset < segment.end; };
  const auto segment = std::find_if(segments_.begin(), segments_.end(), behind);
  if (segment == segments_.end() || bytes.size() > segment->end - offset) {
    errno = EINVAL;  // no place lies in two of them
    return false;
  }
  if (!is_whole(*segment)) return false;
  offset -= segment->begin;
  while (!bytes.empty()) {
    const ssize_t done =
        ::pwrite(segment->descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
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
  const bool fits = has_shorter_ ? bytes.size() <= place.length : bytes.size() == place.length;
  if (place.length == 0 || bytes.empty() || !fits) return;
  if (!write(place.offset, bytes)) {
    write_error_ = errno;
    add(failed_, 1);
    return;
  }
  std::atomic_ref(table_[id].crc32c).store(crc, std::memory_order_relaxed);
  const auto length = static_cast<uint32_t>(bytes.size());
  if (has_shorter_) std::atomic_ref(table_[id].stored).store(length, std::memory_order_relaxed);
  if (state(id).exchange(1, std::memory_order_acq_rel) == 1) return;  // somebody else's, the same
  add(stored_, 1);
  add_ready(1, length);
}

void CacheFile::reject(uint64_t id) noexcept {
  add(damaged_, 1);
  const uint32_t length = stored_length(id, place(id));
  uint32_t ready = 1;
  if (!is_writable() || !state(id).compare_exchange_strong(ready, 0)) return;
  add_ready(-1, -static_cast<int64_t>(length));
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

}  // namespace fastload
