#include "cache/disk_tier.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"

namespace fastload {
namespace {

void add(std::atomic<uint64_t>& counter, uint64_t value = 1) noexcept {
  counter.fetch_add(value, std::memory_order_relaxed);
}

// SplitMix64 (Steele, Lea and Flood, 2014): which slots are looked at need not be told again.
uint64_t random_word(uint64_t state) noexcept {
  state *= 0x9E3779B97F4A7C15;
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EB;
  return state ^ (state >> 31);
}

}  // namespace

DiskTier::DiskTier(int descriptor, std::string path, bool alone)
    : table_(descriptor, std::move(path), alone) {
  const std::string name = table_.path() + ".data";
  source_ = open_unmapped(name);
  if (source_->size() != header().data_size) {
    throw Error(ErrorKind::kTruncated, name + " has " + std::to_string(source_->size()) +
                                           " bytes, the table says " +
                                           std::to_string(header().data_size) +
                                           ". Remove it with 'fastload cache clear'.");
  }
  out_ = open_path(name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
  if (out_ < 0) throw_system_error("cannot open", name);
}

DiskTier::~DiskTier() {
  if (out_ >= 0) ::close(out_);
}

std::optional<uint64_t> DiskTier::find(uint64_t id, uint32_t length) const noexcept {
  if (id >= header().num_records) return {};
  const uint32_t at = table_.place(id).load(std::memory_order_acquire);
  if (at == 0) return {};
  const uint64_t slot = at - 1;
  const TierClass* const of = table_.class_of_slot(slot);
  if (of == nullptr || of != table_.class_of_length(length)) return {};
  if (table_.word(slot).load(std::memory_order_acquire) != id + 1) return {};
  return of->data_offset + (slot - of->first_slot) * of->slot_bytes;
}

void DiskTier::reject(uint64_t id, uint64_t offset) noexcept {
  const uint32_t at = id < header().num_records ? table_.place(id).load() : 0;
  const TierClass* const of = at == 0 ? nullptr : table_.class_of_slot(at - 1);
  if (of != nullptr && of->data_offset + (at - 1 - of->first_slot) * of->slot_bytes == offset) {
    auto found = static_cast<uint32_t>(id + 1);
    if (table_.word(at - 1).compare_exchange_strong(found, kSlotFree)) {
      add(damaged_);
      add_held(-1, of->slot_bytes);
      return;
    }
  }
  add(overtaken_);
}

bool DiskTier::is_full() const noexcept {
  return std::atomic_ref(table_.live().full).load(std::memory_order_relaxed) != 0;
}

bool DiskTier::is_free(uint32_t word) const noexcept {
  return word == kSlotFree || (word == kSlotNew && !is_full());
}

// Two that stored a record at the same time have a slot each, and the record's word says one.
bool DiskTier::is_of_nobody(const Slot& slot) const noexcept {
  if (slot.before == kSlotNew || slot.before == kSlotFree) return false;
  return slot.before > header().num_records ||
         table_.place(slot.before - 1).load(std::memory_order_relaxed) != slot.number + 1;
}

bool DiskTier::take(const Slot& slot, uint64_t id) noexcept {
  uint32_t before = slot.before;
  return table_.word(slot.number)
      .compare_exchange_strong(before, static_cast<uint32_t>(id + 1) | kSlotWriting);
}

// The slot that the record had, if that is free: what was damaged goes back to its place.
std::optional<DiskTier::Slot> DiskTier::take_own(const TierClass& of, uint64_t id) noexcept {
  const uint32_t at = table_.place(id).load(std::memory_order_acquire);
  if (at == 0 || at - 1 < of.first_slot || at - 1 - of.first_slot >= of.num_slots) return {};
  const Slot slot{at - 1, table_.word(at - 1).load()};
  if (!is_free(slot.before) || !take(slot, id)) return {};
  return slot;
}

// A slot that nobody has had yet, or that was found free when somebody attached alone.
std::optional<DiskTier::Slot> DiskTier::take_next(const TierClass& of, uint64_t id) noexcept {
  const std::atomic_ref next = table_.next(of);
  for (uint32_t passed = 0; passed < kMostPassed; ++passed) {
    if (next.load(std::memory_order_relaxed) >= of.num_slots) return {};
    const uint64_t number = next.fetch_add(1, std::memory_order_relaxed);
    if (number >= of.num_slots) return {};
    const Slot slot{of.first_slot + number, table_.word(of.first_slot + number).load()};
    if (is_free(slot.before) && take(slot, id)) return slot;
  }
  return {};
}

// Of some slots the one whose record is needed in the latest epoch, if that is later than this
// one's.
std::optional<DiskTier::Slot> DiskTier::take_drawn(const TierClass& of, uint64_t id) noexcept {
  const Uses::Known known = uses_.known();
  unsigned latest = known.after_next(id);
  std::optional<Slot> best;
  const uint64_t draws = std::min<uint64_t>(kDraws, of.num_slots);
  const uint64_t first = draws_.fetch_add(draws, std::memory_order_relaxed);
  for (uint64_t i = 0; i < draws; ++i) {
    const uint64_t number = of.num_slots <= kDraws ? i : random_word(first + i + 1) % of.num_slots;
    const Slot slot{of.first_slot + number, table_.word(of.first_slot + number).load()};
    if ((slot.before & kSlotWriting) != 0) continue;
    if (is_free(slot.before) || is_of_nobody(slot)) {
      best = slot;
      break;
    }
    if (slot.before == kSlotNew) continue;
    const unsigned next = known.next(slot.before - 1);
    if (next <= latest) continue;
    latest = next;
    best = slot;
  }
  if (!best || !take(*best, id)) return {};
  return best;
}

// A record that another thread is storing is left to it: reading ahead and a miss may bring the
// same one, and a second slot for it would leave some other record without room. (Other processes
// may still do so.)
void DiskTier::store(uint64_t id, Bytes bytes) noexcept {
  const auto length = static_cast<uint32_t>(bytes.size());
  if (id >= header().num_records || find(id, length)) return;
  std::atomic<uint64_t>& writing = writing_[id % writing_.size()];
  uint64_t found = 0;
  const bool is_marked = writing.compare_exchange_strong(found, id + 1);
  if (found == id + 1) return;
  const TierClass* const of = table_.class_of_length(length);
  if (writers_.fetch_add(1, std::memory_order_relaxed) >= kMostWriters) {
    add(busy_);
  } else if (of == nullptr) {
    add(declined_);
  } else if (!find(id, length)) {
    store_in(*of, id, bytes);
  }
  writers_.fetch_sub(1, std::memory_order_relaxed);
  if (is_marked) writing.store(0);
}

void DiskTier::store_in(const TierClass& of, uint64_t id, Bytes bytes) noexcept {
  std::optional<Slot> slot = take_own(of, id);
  if (!slot) slot = take_next(of, id);
  if (!slot) slot = take_drawn(of, id);
  if (slot) {
    write_slot(of, *slot, id, bytes);
  } else {
    add(declined_);
  }
}

// Into a slot that is taken.
void DiskTier::write_slot(const TierClass& of, const Slot& slot, uint64_t id,
                          Bytes bytes) noexcept {
  const bool was_held = slot.before != kSlotNew && slot.before != kSlotFree;
  if (was_held) add(dropped_);
  const uint64_t offset = of.data_offset + (slot.number - of.first_slot) * of.slot_bytes;
  if (!write(offset, bytes)) {
    write_error_ = errno;
    add(failed_);
    if (slot.before == kSlotNew) std::atomic_ref(table_.live().full).store(1);
    table_.word(slot.number).store(slot.before == kSlotNew ? kSlotNew : kSlotFree);
    if (was_held) add_held(-1, of.slot_bytes);
    return;
  }
  table_.place(id).store(static_cast<uint32_t>(slot.number + 1), std::memory_order_release);
  table_.word(slot.number).store(static_cast<uint32_t>(id + 1), std::memory_order_release);
  if (!was_held) add_held(1, of.slot_bytes);
  add(stored_);
}

bool DiskTier::write(uint64_t offset, Bytes bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(out_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done == 0) errno = ENOSPC;
    if (done <= 0) return false;
    offset += static_cast<uint64_t>(done);
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
  return true;
}

void DiskTier::add_held(int64_t records, uint64_t slot_bytes) noexcept {
  const std::atomic_ref held_records(table_.live().held_records),
      held_bytes(table_.live().held_bytes);
  held_records.fetch_add(static_cast<uint64_t>(records), std::memory_order_relaxed);
  held_bytes.fetch_add(static_cast<uint64_t>(records) * slot_bytes, std::memory_order_relaxed);
}

void DiskTier::count_hit(uint32_t length) noexcept {
  add(hits_);
  add(hit_bytes_, length);
}

void DiskTier::count_miss(uint32_t length) noexcept {
  add(misses_);
  add(miss_bytes_, length);
}

DiskTier::Counts DiskTier::counts() const noexcept {
  Counts counts;
  counts.hits = hits_;
  counts.hit_bytes = hit_bytes_;
  counts.misses = misses_;
  counts.miss_bytes = miss_bytes_;
  counts.stored = stored_;
  counts.dropped = dropped_;
  counts.declined = declined_;
  counts.damaged = damaged_;
  counts.overtaken = overtaken_;
  counts.failed = failed_;
  counts.busy = busy_;
  counts.held_records = std::atomic_ref(table_.live().held_records).load();
  counts.held_bytes = std::atomic_ref(table_.live().held_bytes).load();
  counts.full = is_full();
  counts.write_error = write_error_;
  return counts;
}

}  // namespace fastload
