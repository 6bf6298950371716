// Makes coefficient records in threads that have nothing else to do.
//
// DESIGN. Records that were read for a batch, and that the node's cache wants as coefficients, wait
// here, in copies. The transcoder is a client of the pool that stands behind all loaders: it gets a
// thread where no loader wants one, and gives it back after the record in hand. Copies take a fixed
// number of bytes at most. Where they do, there is no time to spare, and the thread that has decoded
// the record transcodes it, too: a loader that is in its job's way is the very one that gains by
// coefficients, and would never come to them. For the same reason a thread that comes to a record
// which is still waiting from the epoch before transcodes the one that has waited longest.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "cache/coefficient_cache.h"
#include "decode/decode.h"
#include "engine/pool.h"

namespace fastload {

// Safe to use from many threads, but for close().
class Transcoder final : public Pool::Client {
 public:
  static constexpr size_t kMostBytes = 32 << 20;  // of copies

  // As many threads at once as `limit`, of `seats`. It has left the pool when it is closed.
  Transcoder(Pool& pool, const DecodeLimits& limits, int limit, int seats);
  ~Transcoder() override { close(); }

  // A record whose checked bytes the cache wants; they are not needed afterwards.
  void offer(const std::shared_ptr<CoefficientCache>& cache, uint64_t id, const Record& record,
             Bytes bytes) noexcept;
  // Drops what waits, when the records in hand are done. Idempotent.
  void close();
  void set_limit(int limit) { pool_.set_limit(*this, limit); }

  struct Counts {
    uint64_t waiting_records = 0, waiting_bytes = 0;  // now
    uint64_t spare = 0;                               // transcoded by threads with nothing to do
    uint64_t at_once = 0;                             // by the threads that had decoded them
  };
  [[nodiscard]] Counts counts();

 private:
  struct Waiting {
    std::shared_ptr<CoefficientCache> cache;
    uint64_t id = 0;
    Record record;
    std::vector<uint8_t> bytes;
  };
  [[nodiscard]] bool has_work() const override { return !waiting_.empty() && !closing_; }
  void work(int seat, Scratch& scratch) noexcept override;
  bool queue(const std::shared_ptr<CoefficientCache>& cache, uint64_t id, const Record& record,
             Bytes bytes);
  bool take(Waiting& one);
  void put(CoefficientCache& cache, uint64_t id, const Record& record, Bytes bytes,
           std::atomic<uint64_t>& count) noexcept;

  Pool& pool_;
  const DecodeLimits limits_;
  std::deque<Waiting> waiting_;  // under the pool's mutex, as is what follows
  std::deque<Waiting> dropped_;  // by close(); made beforehand, because a new deque takes memory
  size_t bytes_ = 0;
  bool closing_ = false;
  bool closed_ = false;
  std::atomic<uint64_t> spare_{0}, at_once_{0};
};

}  // namespace fastload
