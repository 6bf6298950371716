#include "cache/tier_table.h"

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

#include "base/crc32c.h"
#include "base/error.h"
#include "io/file.h"

namespace fastload {

// All of the process. A forked child would keep a lock alive by its copy of the descriptor.
class OpenTables {
 public:
  // Never destroyed: a fork may come at any time.
  static OpenTables& all() {
    static auto* const tables = new OpenTables;
    return *tables;
  }
  void add(TierTable* table) {
    const std::lock_guard lock(mutex_);
    tables_.insert(table);
  }
  void remove(TierTable* table) {
    const std::lock_guard lock(mutex_);
    tables_.erase(table);
  }

 private:
  OpenTables() {
    ::pthread_atfork([] { all().mutex_.lock(); }, [] { all().mutex_.unlock(); },
                     [] { all().forked(); });
  }
  void forked() {
    for (TierTable* table : tables_) {
      const int descriptor = table->descriptor_.exchange(-1);
      if (descriptor >= 0) ::close(descriptor);
    }
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::set<TierTable*> tables_;
};

namespace {

bool lies_in(uint64_t offset, uint64_t length, uint64_t begin, uint64_t end) {
  return offset >= begin && offset <= end && length <= end - offset;
}

}  // namespace

TierTable::TierTable(int descriptor, std::string path, bool alone)
    : descriptor_(descriptor), path_(std::move(path)) {
  int again = -1;
  try {
    again = open_again();
    read_header(again);
    map(again);
    if (alone) put_in_order();
    OpenTables::all().add(this);
  } catch (...) {
    if (again >= 0) ::close(again);
    close_all();
    throw;
  }
  ::close(again);
}

TierTable::~TierTable() {
  OpenTables::all().remove(this);
  close_all();
}

void TierTable::close_all() noexcept {
  guard_ = GuardedRange();
  if (data_ != nullptr) ::munmap(data_, header_.file_size);
  data_ = nullptr;
  const int descriptor = descriptor_.exchange(-1);
  if (descriptor >= 0) ::close(descriptor);
}

void TierTable::damaged(const std::string& what) const {
  throw Error(ErrorKind::kFormat, path_ + " is not a valid disk tier: " + what +
                                      ". Remove it with 'fastload cache clear'.");
}

// For the mapping: it keeps its open file, and with it a lock, alive also in a forked child.
int TierTable::open_again() const {
  const std::string same = "/proc/self/fd/" + std::to_string(descriptor_);
  const int again = open_path(same, O_RDWR | O_CLOEXEC);
  if (again < 0 && errno == ENOENT) {
    throw Error(ErrorKind::kIo, path_ + " cannot be used as a disk tier, because /proc is not " +
                                    "there. Mount it (mount -t proc proc /proc), or leave the " +
                                    "tier out.");
  }
  if (again < 0) throw_system_error("cannot open", path_);
  return again;
}

void TierTable::read_header(int file) {
  struct stat found{};
  if (::fstat(file, &found) != 0) throw_system_error("cannot look at", path_);
  std::vector<uint8_t> bytes(kTierHeaderBytes);
  const auto got = read_up_to(file, bytes, 0);
  if (got < 0) throw_system_error("cannot read", path_);
  if (got < static_cast<ssize_t>(bytes.size())) {
    throw Error(ErrorKind::kTruncated, path_ + " has only " + std::to_string(found.st_size) +
                                           " bytes. Remove it with 'fastload cache clear'.");
  }
  std::memcpy(&header_, bytes.data(), sizeof(header_));
  if (std::memcmp(header_.magic, "FLTIER01", 8) != 0) damaged("its first 8 bytes are not FLTIER01");
  uint32_t expected = 0;
  constexpr uint64_t kChecked = kTierHeaderBytes - sizeof(expected);
  std::memcpy(&expected, bytes.data() + kChecked, sizeof(expected));
  if (header_.header_bytes != kTierHeaderBytes || crc32c({bytes.data(), kChecked}) != expected) {
    throw Error(ErrorKind::kChecksum, path_ +
                                          ": the header's CRC-32C differs. Remove it with "
                                          "'fastload cache clear'.");
  }
  if (header_.major != 1) {
    damaged("format version " + std::to_string(header_.major) + ", this fastload reads 1");
  }
  if (header_.num_classes > kMostTierClasses) damaged("it has more than 255 classes");
  classes_.resize(header_.num_classes);
  if (!classes_.empty()) {
    std::memcpy(classes_.data(), bytes.data() + kTierClassesOffset,
                classes_.size() * sizeof(TierClass));
  }
  check_regions(static_cast<uint64_t>(found.st_size));
}

void TierTable::check_regions(uint64_t size) {
  const TierHeader& h = header_;
  if (size != h.file_size) {
    throw Error(ErrorKind::kTruncated,
                path_ + " has " + std::to_string(size) + " bytes, the header says " +
                    std::to_string(h.file_size) + ". Remove it with 'fastload cache clear'.");
  }
  const uint64_t begin = kTierHeaderBytes + kTierLiveBytes;
  if (h.num_records > kMostTierRecords || h.num_slots > kMostTierRecords ||
      !lies_in(h.places_offset, h.num_records * 4, begin, size) || h.places_offset % 4 != 0 ||
      !lies_in(h.slots_offset, h.num_slots * 4, begin, size) || h.slots_offset % 4 != 0) {
    damaged("a table lies outside the file");
  }
  uint64_t slots = 0, before = 0;
  for (const TierClass& of : classes_) {
    if (of.slot_bytes <= before || of.slot_bytes % kTierAlignment != 0 || of.num_slots == 0 ||
        of.first_slot != slots || of.num_slots > h.num_slots - slots ||
        of.data_offset % kTierAlignment != 0 || of.data_offset > h.data_size ||
        of.num_slots > (h.data_size - of.data_offset) / of.slot_bytes) {
      damaged("a class of slots has no place");
    }
    slots += of.num_slots;
    before = of.slot_bytes;
  }
  if (slots != h.num_slots) damaged("its classes have not as many slots as it has");
}

void TierTable::map(int file) {
  void* const address =
      ::mmap(nullptr, header_.file_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (address == MAP_FAILED) throw_system_error("cannot map", path_);
  data_ = static_cast<uint8_t*>(address);
  guard_ = GuardedRange(data_, header_.file_size, path_, true);
  places_ = reinterpret_cast<uint32_t*>(data_ + header_.places_offset);
  slots_ = reinterpret_cast<uint32_t*>(data_ + header_.slots_offset);
}

// What processes that were killed were writing, and what a crash of the machine has left: a slot
// is somebody's if his word says so, too. All are looked through for free ones again.
void TierTable::put_in_order() noexcept {
  TierLive& live = this->live();
  uint64_t records = 0, bytes = 0;
  for (const TierClass& of : classes_) {
    for (uint64_t slot = of.first_slot; slot < of.first_slot + of.num_slots; ++slot) {
      const uint32_t found = slots_[slot];
      if (found == kSlotNew || found == kSlotFree) continue;
      const bool held = found <= header_.num_records && places_[found - 1] == slot + 1;
      if (!held) slots_[slot] = kSlotFree;
      records += held ? 1 : 0;
      bytes += held ? of.slot_bytes : 0;
    }
  }
  live.full = 0;
  std::fill_n(live.next, kMostTierClasses, uint64_t{0});
  live.held_records = records;
  live.held_bytes = bytes;
}

TierLive& TierTable::live() const noexcept {
  return *reinterpret_cast<TierLive*>(data_ + kTierHeaderBytes);
}

const TierClass* TierTable::class_of_slot(uint64_t slot) const noexcept {
  if (slot >= header_.num_slots) return nullptr;
  const auto behind =
      std::upper_bound(classes_.begin(), classes_.end(), slot,
                       [](uint64_t number, const TierClass& of) { return number < of.first_slot; });
  return &*(behind - 1);
}

const TierClass* TierTable::class_of_length(uint64_t length) const noexcept {
  const auto found =
      std::lower_bound(classes_.begin(), classes_.end(), length,
                       [](const TierClass& of, uint64_t bytes) { return of.slot_bytes < bytes; });
  return found == classes_.end() ? nullptr : &*found;
}

}  // namespace fastload
