// Records that several frames of a batch are of: windows overlap, and are clamped at the ends of
// their runs. Each is read and decoded once.
//
// DESIGN. When a batch is submitted, the places of its work (a sample's position, and the slot of a
// stream there) that have the same record are found. The first of them owns it: it reads and
// decodes the record as it would alone. When it is the others' turn, they wait until the owner's
// sample is settled, and take what has been made:
// - its finished pixels, where they are the same: in the same sample, or where no draw of a sample
//   makes a difference and the view is the same;
// - else the whole picture, which the owner has kept then, and cut from it themselves.
// Where there is none of that (the owner's sample has failed, or there was no memory) they read and
// decode themselves, so each has its own fault, and pixels are the same in every case.
//
// Positions are claimed in ascending order, and owners come first: the lowest position that is not
// settled waits for nobody, so somebody always gets on. What a sample makes is seen by others when
// the sample is settled, not before: until then all of it may be made once more (loss_count()), or
// become blank.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "cache/bounded.h"
#include "engine/shared_picture.h"
#include "sample/field_plan.h"
#include "transform/view.h"

namespace fastload {

// Memory of whole pictures between batches, for fresh memory takes half as long as decoding into
// it. Safe to use from many threads.
class SparePixels {
 public:
  static constexpr size_t kMostBytes = size_t{64} << 20;

  // At least so many bytes, which may be anything. Throws std::bad_alloc.
  std::vector<uint8_t> take(size_t bytes);
  void give(std::vector<uint8_t> pixels) noexcept;
  void clear();

 private:
  std::mutex mutex_;
  std::vector<std::vector<uint8_t>> free_;
  size_t bytes_ = 0;
};

// Of one batch. Safe to use from many threads, each with a position of its own.
class SharedRecords {
 public:
  // Of whole pictures; what comes on top is not kept.
  static constexpr size_t kMostBytes = size_t{256} << 20;

  // A record, and what its owner has made of it.
  class Entry {
   public:
    Entry(uint32_t position, uint32_t slot) : position(position), slot(slot) {}
    const uint32_t position, slot;  // the owner's
    bool wants_whole = false;       // others may cut from the whole picture

    bool is_made = false;
    Extent size, stored;      // of the picture that was cut from, and as stored
    std::vector<View> views;  // of the owner's frames, of a picture of that size
    bool has_whole = false;
    SharedPicture whole{pixels_};

   private:
    friend class SharedRecords;
    std::vector<uint8_t> pixels_;
    uint32_t left_ = 1;  // places that are not settled; under the mutex
  };

  // `records`: those of each sample's streams, as they are announced; -1: none. The plan and the
  // spare memory must outlive it.
  SharedRecords(std::span<const int64_t> records, const FieldsPlan& plan, SparePixels& spare);

  [[nodiscard]] bool any() const { return !entries_.empty(); }
  // The record of that place, where it is its owner, or where another place is; nullptr: not so.
  [[nodiscard]] Entry* owned(uint32_t position, uint32_t slot);
  [[nodiscard]] Entry* used(uint32_t position, uint32_t slot);
  // Of the owner's frames the one whose pixels a frame has, which is of the same record, if both
  // are of the same sample or nothing is drawn for them; else nothing.
  [[nodiscard]] const FieldsPlan::Frame* same(const Entry& entry, FieldsPlan::Frame frame) const;
  // Whether no draw of a sample makes a difference to a frame.
  [[nodiscard]] bool is_still(FieldsPlan::Frame frame) const;

  // A sample is begun, perhaps once more: what it has made is void.
  void begin(uint32_t position);
  // Room for an entry's whole picture; false: there is none.
  bool reserve(Entry& entry, size_t bytes);
  // Waits for the owner, if that is another sample; whether it has made the record's pictures.
  bool wait(const Entry& entry, uint32_t position);
  // Nothing more is done for a sample; if not `good`, what it has made is void.
  void settle(uint32_t position, bool good) noexcept;

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  [[nodiscard]] bool wants_whole(const Entry& entry, size_t position, size_t slot) const;
  [[nodiscard]] Entry* entry_of(uint32_t position, uint32_t slot);
  void forget(Entry& entry) noexcept;

  const FieldsPlan& plan_;
  SparePixels& spare_;
  const uint32_t slots_;            // of each sample
  std::deque<Entry> entries_;       // which do not move
  std::vector<uint32_t> entry_of_;  // by place
  std::atomic<size_t> bytes_{0};    // of whole pictures
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> settled_;  // by position
};

// Leaves the first of each record; the others become -1.
void leave_first(std::vector<int64_t>& records);

}  // namespace fastload
