// The tier below the node's memory: records in slots of a file on a local disk, for all processes
// of a node. Python makes the files (fastload/cache/disk.py): a table, which each process
// maps, and the slots, which are read and written by system calls only.
//
// DESIGN. The lengths of all records are known, so there are classes of slots, as many of each as
// is the tier's share of the set; a slot holds one record, and a record takes the place of one of
// its own class only. No allocator, no fragmentation. Where all have room nothing is ever dropped.
//
// Which record goes: the order of coming epochs is known (uses.h), so of some slots drawn at random
// the record that is needed in the latest epoch, and the new one is not stored at all if it is
// needed no sooner than those (Belady's rule, over a sample of the slots as Redis takes one for its
// LRU). Where that is not known, or the same for all, records stay: a fixed share, as in the node's
// memory.
//
// No locks. A slot's word says whose record is there, a record's word in which slot it may be, and
// it is there if both say so. Who stores a record puts its id with kSlotWriting into the slot's
// word (compare and exchange), writes the bytes, and takes the mark away. A process that dies in
// between leaves the mark; who attaches alone takes marks away, and whatever does not fit together.
// Nothing is trusted: whoever reads a slot compares the bytes with the index's CRC-32C each time.
// So a record that is overwritten while somebody reads it, a disk's error and a table that a crash
// left in disorder are misses, and none is a wrong record.
//
// A disk without room is a smaller tier: slots that have been written before have their blocks, and
// go on. The table has its blocks from the beginning: it is written to by a map.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "cache/tier_table.h"
#include "cache/uses.h"
#include "io/byte_source.h"
#include "io/file.h"
#include "shard/kept.h"

namespace fastload {

// Safe to use from many threads.
class DiskTier final : public RecordTier {
 public:
  static constexpr uint32_t kDraws = 24;       // slots of which the one that is needed last goes
  static constexpr int kMostWriters = 24;      // threads; others leave their record unstored
  static constexpr uint32_t kMostPassed = 64;  // slots passed over in search of a free one

  // Attaches to the table at `path`, which `descriptor` has open for writing; owns the descriptor,
  // also when it throws. The slots lie at `path`.data. `alone`: nobody else uses the tier, and
  // nobody will before this has returned. Throws Error(kIo, kFormat, kTruncated, kChecksum).
  DiskTier(int descriptor, std::string path, bool alone);
  ~DiskTier() override;
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  [[nodiscard]] const std::string& path() const override { return table_.path(); }
  [[nodiscard]] uint64_t size() const override { return header().num_records; }
  [[nodiscard]] uint32_t index_digest() const override { return header().index_digest; }
  [[nodiscard]] const TierHeader& header() const { return table_.header(); }
  [[nodiscard]] Uses& uses() { return uses_; }

  [[nodiscard]] ByteSource& source() noexcept override { return *source_; }
  [[nodiscard]] std::optional<uint64_t> find(uint64_t id, uint32_t length) const noexcept override;
  void reject(uint64_t id, uint64_t offset) noexcept override;
  void store(uint64_t id, Bytes bytes) noexcept override;
  void count_hit(uint32_t length) noexcept override;
  void count_miss(uint32_t length) noexcept override;

  struct Counts {
    uint64_t hits = 0, hit_bytes = 0;     // records read from here
    uint64_t misses = 0, miss_bytes = 0;  // records read from storage
    uint64_t stored = 0;                  // records put here
    uint64_t dropped = 0;                 // records that they took the place of
    uint64_t declined =
        0;  // not stored: needed no sooner than what is here, or of a class without slots
    uint64_t damaged = 0;                       // that were not what they should be
    uint64_t overtaken = 0;                     // that were dropped while they were read
    uint64_t failed = 0;                        // that could not be written
    uint64_t busy = 0;                          // not stored: too many were being written
    uint64_t held_records = 0, held_bytes = 0;  // by all processes: slots in use
    bool full = false;                          // the disk has no room for more
    int write_error = 0;                        // errno of the last that could not be written
  };
  [[nodiscard]] Counts counts() const noexcept;

 private:
  struct Slot {
    uint64_t number = 0;
    uint32_t before = 0;  // its word
  };

  [[nodiscard]] bool is_full() const noexcept;
  [[nodiscard]] bool is_free(uint32_t word) const noexcept;
  [[nodiscard]] bool is_of_nobody(const Slot& slot) const noexcept;
  bool take(const Slot& slot, uint64_t id) noexcept;
  std::optional<Slot> take_own(const TierClass& of, uint64_t id) noexcept;
  std::optional<Slot> take_next(const TierClass& of, uint64_t id) noexcept;
  std::optional<Slot> take_drawn(const TierClass& of, uint64_t id) noexcept;
  void store_in(const TierClass& of, uint64_t id, Bytes bytes) noexcept;
  void write_slot(const TierClass& of, const Slot& slot, uint64_t id, Bytes bytes) noexcept;
  bool write(uint64_t offset, Bytes bytes) noexcept;
  void add_held(int64_t records, uint64_t slot_bytes) noexcept;

  TierTable table_;
  std::unique_ptr<ByteSource> source_;
  int out_ = -1;  // the slots, for writing
  Uses uses_;
  std::atomic<int> writers_{0};
  std::array<std::atomic<uint64_t>, 64> writing_{};  // records, plus one, by their last bits
  std::atomic<uint64_t> hits_{0}, hit_bytes_{0}, misses_{0}, miss_bytes_{0}, stored_{0},
      dropped_{0}, declined_{0}, damaged_{0}, overtaken_{0}, failed_{0}, busy_{0};
  std::atomic<uint64_t> draws_{0};
  std::atomic<int> write_error_{0};
};

}  // namespace fastload
