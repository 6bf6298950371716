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

namespace fastload {

// The label of a position that carries no sample: padding, or a bad sample. torch's
// cross_entropy ignores it by default (ignore_index=-100).
inline constexpr int64_t kIgnoreLabel = -100;
// The sample id of a position that somebody else fills: its memory and label are left as they are.
inline constexpr int64_t kElsewhere = -2;

struct SampleFault {
  uint32_t position = 0;  // in the batch
  int64_t sample = -1;    // sample id
  ErrorKind kind = ErrorKind::kDecode;
  std::string message;
};

// What the control plane asks for. The spans are borrowed: `owner` keeps their memory alive, and is
// let go only by the thread that collects or cancels the batch, never by a decoding thread.
struct BatchRequest {
  std::span<uint8_t> images;    // ids.size() samples of equal size, back to back
  std::span<int64_t> labels;    // ids.size()
  std::vector<int64_t> ids;     // sample ids; -1: padding, or kElsewhere
  std::vector<uint32_t> draws;  // SampleRng::draw of each, or empty: all 0
  uint64_t epoch = 0;
  std::shared_ptr<void> owner;
  std::shared_ptr<void> ahead;  // what has been read ahead for it; the engine's business
};

// Claimed sample by sample, without a lock, by any number of threads.
class Batch {
 public:
  // Throws Error(kValue) if the spans do not fit ids and sample_bytes.
  Batch(BatchRequest request, size_t sample_bytes);

  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(request_.ids.size()); }
  [[nodiscard]] uint64_t epoch() const { return request_.epoch; }
  [[nodiscard]] int64_t id(uint32_t position) const { return request_.ids[position]; }
  [[nodiscard]] uint32_t draw(uint32_t position) const {
    return request_.draws.empty() ? 0 : request_.draws[position];
  }
  [[nodiscard]] const std::shared_ptr<void>& ahead() const { return request_.ahead; }
  // Up to `count` unclaimed positions, [first, last); empty when all are claimed.
  struct Range {
    uint32_t first, last;
  };
  Range claim(uint32_t count);
  // Marks `count` positions as filled; true for the call that completes the batch.
  bool finish(uint32_t count);
  // Claims everything that is left and marks it filled; true if that completes the batch.
  bool abandon();

  uint8_t* image(uint32_t position);
  void set_label(uint32_t position, int64_t label) { request_.labels[position] = label; }
  // Zeros and kIgnoreLabel: the position carries no sample.
  void blank(uint32_t position);
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
  BatchRequest request_;
  size_t sample_bytes_;
  std::atomic<uint32_t> next_{0};
  std::atomic<uint32_t> left_;
  static constexpr uint32_t kNone = ~uint32_t{0};
  std::atomic<uint32_t> starved_{kNone};  // the first position that starve() was called for
  std::mutex faults_mutex_;
  std::vector<SampleFault> faults_;
};

}  // namespace fastload
