// A batch while it is being filled: which samples, into which memory, and what went wrong.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "sample/field_place.h"
#include "sample/field_plan.h"

namespace fastload {

// The sample id of a position that somebody else fills: its memory is left as it is.
inline constexpr int64_t kElsewhere = -2;

// Set in a partner's sample id, of a plan with windows: the frame is the nearest that the run has
// of one behind its ends. It is read all the same.
inline constexpr int64_t kPadBit = int64_t{1} << 62;

class SharedRecords;  // engine/shared_records.h

struct SampleFault {
  uint32_t position = 0;  // in the batch
  int64_t sample = -1;    // sample id
  ErrorKind kind = ErrorKind::kDecode;
  std::string message;
};

// What the control plane asks for. The places' memory is borrowed: `owner` keeps it alive, and is
// let go only by the thread that collects or cancels the batch, never by a decoding thread.
struct BatchRequest {
  std::vector<FieldPlace> places;  // of each field of the plan
  std::vector<int64_t> ids;        // sample ids; -1: padding, or kElsewhere
  std::vector<uint32_t> draws;     // SampleRng::draw of each, or empty: all 0
  uint64_t epoch = 0;
  std::shared_ptr<void> owner;
  std::shared_ptr<void> ahead;  // what has been read ahead for it; the engine's business
  // Sample ids that each sample is put together with, equally many (-1: none), one sample's after
  // the other's; or empty.
  std::vector<int64_t> partners = {};
  // Of a plan with windows: the records that several frames are of; nullptr: none. As `ahead`.
  std::shared_ptr<SharedRecords> shared = nullptr;
};

// How many partners each of n samples has. Throws Error(kValue) where they are not equally many.
uint32_t partners_each(size_t partners, size_t n);

// Throws Error(kValue) where a sample does not have the partners that the plan's windows need.
void check_frames(std::span<const int64_t> partners, std::span<const int64_t> ids,
                  const FieldsPlan& plan);

// Claimed sample by sample, without a lock, by any number of threads.
class Batch {
 public:
  // Throws Error(kValue) if the samples do not fit into the places. The plan must outlive the
  // batch.
  Batch(BatchRequest request, const FieldsPlan& plan);

  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(request_.ids.size()); }
  [[nodiscard]] uint64_t epoch() const { return request_.epoch; }
  [[nodiscard]] int64_t id(uint32_t position) const { return request_.ids[position]; }
  [[nodiscard]] uint32_t draw(uint32_t position) const {
    return request_.draws.empty() ? 0 : request_.draws[position];
  }
  // How many partners each sample has, and those of one.
  [[nodiscard]] uint32_t partner_count() const { return partner_count_; }
  [[nodiscard]] std::span<const int64_t> partners(uint32_t position) const {
    return std::span(request_.partners).subspan(size_t{position} * partner_count_, partner_count_);
  }
  // Of a plan with windows: whose frame a partner is, 0 being the sample itself, and whether it is
  // padding.
  [[nodiscard]] uint64_t frame_id(uint32_t position, uint32_t partner) const {
    return static_cast<uint64_t>(frame(position, partner) & ~kPadBit);
  }
  [[nodiscard]] bool is_pad(uint32_t position, uint32_t partner) const {
    return (frame(position, partner) & kPadBit) != 0;
  }
  [[nodiscard]] const std::shared_ptr<void>& ahead() const { return request_.ahead; }
  [[nodiscard]] SharedRecords* shared() const { return request_.shared.get(); }
  // Up to `count` unclaimed positions, [first, last); empty when all are claimed.
  struct Range {
    uint32_t first, last;
  };
  Range claim(uint32_t count);
  // Marks `count` positions as filled; true for the call that completes the batch.
  bool finish(uint32_t count);
  // Claims everything that is left and marks it filled; true if that completes the batch.
  bool abandon();

  // Where the samples' part of a field lies, by its number.
  [[nodiscard]] const FieldPlace& place(size_t field) const { return request_.places[field]; }
  // The fields' blanks: the position carries no sample.
  void blank(uint32_t position) noexcept;
  // Takes memory; throws std::bad_alloc.
  void add_fault(SampleFault fault);
  // There was no memory for the sample at `position`: a fault (kMemory) that takes none. Of several
  // in a batch the first position is kept.
  void starve(uint32_t position) noexcept;
  // Sorted by position. For use after completion. Throws std::bad_alloc.
  std::vector<SampleFault> take_faults();
  // The memory's owner, for the collecting thread to let go of. For use after completion.
  std::shared_ptr<void> take_owner() { return std::move(request_.owner); }
  [[nodiscard]] bool complete() const { return left_.load(std::memory_order_acquire) == 0; }

 private:
  [[nodiscard]] int64_t frame(uint32_t position, uint32_t partner) const {
    return partner == 0 ? id(position) : partners(position)[partner - 1];
  }

  BatchRequest request_;
  const FieldsPlan& plan_;
  uint32_t partner_count_ = 0;
  std::atomic<uint32_t> next_{0};
  std::atomic<uint32_t> left_;
  static constexpr uint32_t kNone = ~uint32_t{0};
  std::atomic<uint32_t> starved_{kNone};  // the first position that starve() was called for
  std::mutex faults_mutex_;
  std::vector<SampleFault> faults_;
};

}  // namespace fastload
