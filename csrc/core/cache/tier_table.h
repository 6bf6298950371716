// The table of a disk tier: a file that each process maps. Which records are where; see
// disk_tier.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "cache/tier_layout.h"
#include "io/guarded_range.h"

namespace fastload {

// Safe to use from many threads.
class TierTable {
 public:
  // Attaches to the table at `path`, which `descriptor` has open for writing; owns the descriptor,
  // which holds the lock that says that it is in use, also when it throws. `alone`: nobody else
  // uses the tier, and nobody will before this has returned: it is put in order. Throws Error(kIo,
  // kFormat, kTruncated, kChecksum).
  TierTable(int descriptor, std::string path, bool alone);
  ~TierTable();
  TierTable(const TierTable&) = delete;
  TierTable& operator=(const TierTable&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const TierHeader& header() const { return header_; }
  // In which slot a record may be, + 1; 0: in none. `id` < header().num_records.
  [[nodiscard]] std::atomic_ref<uint32_t> place(uint64_t id) const noexcept {
    return std::atomic_ref(places_[id]);
  }
  // Whose a slot is; see tier_layout.h. `slot` < header().num_slots.
  [[nodiscard]] std::atomic_ref<uint32_t> word(uint64_t slot) const noexcept {
    return std::atomic_ref(slots_[slot]);
  }
  [[nodiscard]] TierLive& live() const noexcept;
  // How many slots of a class have been handed out.
  [[nodiscard]] std::atomic_ref<uint64_t> next(const TierClass& of) const noexcept {
    return std::atomic_ref(live().next[&of - classes_.data()]);
  }
  // nullptr: there is no such slot; no class has slots of that length.
  [[nodiscard]] const TierClass* class_of_slot(uint64_t slot) const noexcept;
  [[nodiscard]] const TierClass* class_of_length(uint64_t length) const noexcept;

 private:
  friend class OpenTables;

  [[noreturn]] void damaged(const std::string& what) const;
  int open_again() const;
  void read_header(int file);
  void check_regions(uint64_t size);
  void map(int file);
  void put_in_order() noexcept;
  void close_all() noexcept;

  std::atomic<int> descriptor_;  // -1 in a forked child
  const std::string path_;
  TierHeader header_{};
  std::vector<TierClass> classes_;
  uint8_t* data_ = nullptr;  // the map
  GuardedRange guard_;
  uint32_t* places_ = nullptr;
  uint32_t* slots_ = nullptr;
};

}  // namespace fastload
