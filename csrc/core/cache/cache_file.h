// A dataset's records in memory, kept once for all processes of a node: a file in tmpfs that each
// of them maps, and for large sets further ones ("stripes") that hold the records, because the
// kernel lets one thread at a time write to a file. Offsets count through all of them. Python makes
// the file (fastload/cache/layout.py), with a place for as many records as have room; who reads a
// record from storage puts it into its place.
//
// DESIGN. A record's place never changes and nothing is evicted, so there is no lock: a record is
// written by pwrite, then its state word becomes 1 (release); a reader looks at the word (acquire)
// and uses the mapping. Two that write the same record write the same bytes. One that dies in the
// middle leaves the word 0. Nothing in the file is trusted: a place has a checksum of its own and
// is compared with the file's bounds, and users check a record's CRC-32C when they first read it.
//
// The file's memory is being reserved while it is in use already (reservation.h). Nobody writes to
// or reads from what may have none: a record is written by pwrite, which fails without memory, and
// read when it is ready.
//
// The mapping belongs to another open of the file than the descriptor, which holds the flock that
// says that the file is in use (and the claims): both end with the process, and a forked child,
// which keeps the mapping, closes the descriptor.
//
// A record's place is as long as the record, but in a file of coefficient records, whose lengths
// nobody knows beforehand: a place there is longer, and the entry says how much of it is used.
//
// What somebody cuts off is not there any more (io/guarded_range.h), and nothing is stored then,
// which would make the file as long as it was, with holes in place of records.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "cache/layout.h"
#include "cache/reservation.h"
#include "io/guarded_range.h"
#include "shard/kept.h"

namespace fastload {

// Safe to use from many threads.
class CacheFile final : public KeptTables, public KeptRecords {
 public:
  // Attaches to the file at `path`, which `descriptor` has open; owns the descriptor, also when it
  // throws. Opened for reading only, nothing is stored. Throws Error(kIo, kFormat, kTruncated,
  // kChecksum).
  CacheFile(int descriptor, std::string path);
  ~CacheFile() override;
  CacheFile(const CacheFile&) = delete;
  CacheFile& operator=(const CacheFile&) = delete;

  [[nodiscard]] const std::string& path() const override { return path_; }
  [[nodiscard]] const CacheHeader& header() const { return header_; }
  [[nodiscard]] uint64_t size() const override { return header_.num_records; }
  [[nodiscard]] uint32_t index_digest() const override { return header_.index_digest; }
  // Whether records may be shorter than their places.
  [[nodiscard]] bool has_shorter() const { return has_shorter_; }
  [[nodiscard]] bool is_writable() const { return descriptor_ >= 0 && writable_ && !cut_; }

  struct Found {
    Bytes bytes;  // a view of the mapping; empty: the record is not there, or was lost
    uint32_t crc32c = 0;
    uint16_t width = 0, height = 0;
    bool is_ready = false;  // it was when this was looked at: it may have become so since
  };
  // The record of sample `id`, unchecked.
  [[nodiscard]] Found look(uint64_t id) const noexcept;
  [[nodiscard]] Bytes find(uint64_t id) const noexcept override { return look(id).bytes; }
  [[nodiscard]] bool is_ready(uint64_t id) const noexcept override {
    return id < header_.num_records && state(id).load(std::memory_order_acquire) == 1;
  }
  // Whether the record has a place, and what that is: file offset and length; length 0: none.
  struct Place {
    uint64_t offset = 0;
    uint32_t length = 0;
    uint16_t width = 0, height = 0;
  };
  [[nodiscard]] Place place(uint64_t id) const noexcept;
  [[nodiscard]] bool has_room(uint64_t id) const noexcept override { return place(id).length > 0; }
  [[nodiscard]] bool wants(uint64_t id) const noexcept override {
    return is_writable() && !is_ready(id) && has_room(id);
  }

  // Whether bytes are a view of the mapping.
  [[nodiscard]] bool has(Bytes bytes) const noexcept override {
    return bytes.data() >= data_ && bytes.data() < data_ + header_.file_size;
  }
  // For bytes of look() that have been used: whether the file still has them.
  [[nodiscard]] bool is_there(Bytes bytes) noexcept override {
    const auto offset = static_cast<uint64_t>(bytes.data() - data_);
    for (size_t i = 0; i < segments_.size() && !is_tail_there(bytes); ++i) {
      if (offset >= segments_[i].end) continue;
      if (!is_whole(segments_[i])) mark_lost(bytes);
      break;
    }
    return !is_lost(bytes);
  }

  // Puts a record into its place, if it has one of that length, or in a file with shorter records
  // one that is not shorter, and is not there yet.
  void store(uint64_t id, Bytes bytes, uint32_t crc) noexcept override;
  // The record that was found is not what it should be: as if it were not there, until somebody
  // stores it again.
  void reject(uint64_t id) noexcept override;

  // Locks bytes [begin, end) of the file against claims by other CacheFiles, of this process or
  // another, until release() or until this object or its process ends. Never waits; false if it
  // cannot be had.
  bool claim(uint64_t begin, uint64_t end) noexcept;
  void release(uint64_t begin, uint64_t end) noexcept;

  // The copy of the dataset's file, if it is complete; unchecked.
  [[nodiscard]] Bytes copy(Table table) const noexcept override;
  // Where the copy lies in the file: offset and size; size 0: it has no room.
  [[nodiscard]] std::pair<uint64_t, uint64_t> copy_range(Table table) const noexcept;
  // Writes bytes of the copy from `offset` in it on; the last ones make it complete. Who does so
  // has claimed the range. False if it cannot be written.
  bool write_copy(Table table, uint64_t offset, Bytes bytes) noexcept;

  // A record was read, from here or from elsewhere.
  void count_hit() noexcept override { add(tally().hits, 1); }
  void count_miss() noexcept override { add(tally().misses, 1); }

  // A record became coefficients, or was stored as it is, in so many nanoseconds of a thread.
  void count_transcoded(uint64_t ns) noexcept {
    add(transcoded_, 1);
    add(transcode_ns_, ns);
  }
  void count_as_it_is(uint64_t ns) noexcept {
    add(as_they_are_, 1);
    add(transcode_ns_, ns);
  }

  struct Counts {
    uint64_t hits = 0;                            // records read from here
    uint64_t misses = 0;                          // records read from elsewhere
    uint64_t stored = 0;                          // records put here
    uint64_t damaged = 0;                         // records that were not what they should be
    uint64_t failed = 0;                          // records that could not be written
    uint64_t transcoded = 0;     // records that this process stored as coefficients,
    uint64_t as_they_are = 0;    // that it stored as they are in a file of coefficients
    uint64_t transcode_ns = 0;   // threads' time for both
    uint64_t ready_records = 0, ready_bytes = 0;  // what all processes have put here
    uint64_t reserved_bytes = 0;                  // of the file, that surely have memory
  };
  [[nodiscard]] Counts counts() const;
  // Throws Error(kIo) if the record, which was just stored, is not there.
  void check_stored(uint64_t id) const;
  // The ready records, counted one by one.
  [[nodiscard]] uint64_t count_ready() const noexcept;

 private:
  // Threads count on lines of their own.
  struct alignas(64) Tally {
    std::atomic<uint64_t> hits{0}, misses{0};
  };

  [[nodiscard]] int open_again() const;
  void read_header(int file, uint64_t size);
  void open_segments(uint64_t size);
  void map(int file);
  void map_segment(const Segment& segment, int file);
  void close_all() noexcept;
  void check_regions();
  void reserve();
  [[noreturn]] void damaged(const std::string& what) const;
  [[nodiscard]] std::atomic_ref<uint32_t> state(uint64_t id) const noexcept {
    return std::atomic_ref(table_[id].state);
  }
  [[nodiscard]] uint32_t stored_length(uint64_t id, const Place& place) const noexcept;
  [[nodiscard]] CacheLive& live() const noexcept;
  bool write(uint64_t offset, Bytes bytes) noexcept;
  bool is_whole(const Segment& segment) noexcept;
  void add_ready(int64_t records, int64_t bytes) noexcept;
  static void add(std::atomic<uint64_t>& counter, uint64_t value) noexcept {
    counter.fetch_add(value, std::memory_order_relaxed);
  }
  Tally& tally() noexcept;

  std::atomic<int> descriptor_;  // -1 in a forked child
  const std::string path_;
  bool writable_ = false;
  bool has_shorter_ = false;
  uint8_t* data_ = nullptr;  // the mapping; from live() to the table's end also for writing
  CacheHeader header_{};
  std::vector<Segment> segments_;     // the file itself, then its stripes
  std::vector<GuardedRange> guards_;  // of the segments
  std::atomic<bool> cut_{false};      // a segment is not as long as it was: nothing is stored
  CacheEntry* table_ = nullptr;
  std::array<Tally, 16> tallies_;
  std::atomic<uint64_t> stored_{0}, damaged_{0}, failed_{0};
  std::atomic<uint64_t> transcoded_{0}, as_they_are_{0}, transcode_ns_{0};
  std::atomic<int> write_error_{0};  // errno of the last record that could not be written
  std::unique_ptr<Reservation> reservation_;

  friend class OpenCaches;
};

// Fills in `place_crc` of entries for the samples from `first` on.
void seal_places(CacheEntry* entries, uint64_t count, uint64_t first) noexcept;

}  // namespace fastload
