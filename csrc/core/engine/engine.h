// The batches of one loader, filled by the threads of the process's pool.
//
// DESIGN. Batches are submitted in the order in which they will be consumed. The unit of work is
// one sample: a thread claims positions of the oldest batch that has any left, so a slow sample
// stalls nobody, and batches still complete roughly in order; the consumer waits for them in exact
// order, by ticket. The pool's mutex guards the queue; it is taken once per batch and thread.
// Threads sleep in the pool, consumers on `done_`. A batch's memory is let go only by collect() or
// cancel(), on the caller's thread. After fork() the child has no threads: every call there throws,
// and the engine must be leaked (LeakAfterFork), for locks may be held and scratch memory be in use
// for ever.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "collate/batch.h"
#include "engine/kept_pictures.h"
#include "engine/measure.h"
#include "engine/pool.h"
#include "engine/producer.h"
#include "engine/shared_records.h"
#include "engine/sources.h"
#include "engine/stats.h"
#include "engine/transcoder.h"
#include "read_ahead/read_ahead.h"

namespace fastload {

// How many threads a loader may use, and where they run.
struct ThreadPlan {
  int limit = 1;          // at once
  int most = 0;           // set_threads() goes no higher; 0: limit
  std::vector<int> cpus;  // see Pool::attach()
};

class Engine final : public Pool::Client {
 public:
  // The readers in `sources` must outlive the engine. Throws Error(kValue, kState).
  Engine(Sources sources, SamplePlan plan, const ThreadPlan& threads, FallbackDecode fallback,
         const ReadAheadPlan& read_ahead);
  ~Engine() override;  // as close()

  using Ticket = uint64_t;
  // What the places of a batch depend on; see measure.h. Throws Error(kState).
  std::vector<Measured> measure(std::span<const int64_t> ids, std::span<const uint32_t> draws,
                                uint64_t epoch, std::span<const int64_t> partners = {});
  // Queues a batch behind the ones submitted before. Throws Error(kValue, kState).
  Ticket submit(BatchRequest request);
  // Sample ids of a batch that will be submitted later, after those announced and submitted before:
  // its records are read meanwhile. What it returns is the later request's `ahead`. A batch that
  // was not announced is, when it is submitted.
  // `draws`, `epoch` and `partners` as the request's: by them large records are read as far as
  // needed.
  std::shared_ptr<void> announce(std::vector<int64_t> ids, const std::vector<uint32_t>& draws = {},
                                 uint64_t epoch = 0, const std::vector<int64_t>& partners = {});
  // An announced batch will not be submitted.
  void forget(const std::shared_ptr<void>& announced);
  // Waits up to `seconds` until the batch is complete; true if it is. Throws Error(kState) as soon
  // as another thread closes the engine.
  bool wait(Ticket ticket, double seconds);
  // Takes a complete batch out of the engine and returns its faults. Throws Error(kState) if it is
  // not complete.
  std::vector<SampleFault> collect(Ticket ticket);
  // Drops one batch, waiting for the samples of it that are being decoded right now.
  void cancel(Ticket ticket);
  // Drops all batches when their current samples are done, and leaves the pool; further calls throw
  // Error(kState). Idempotent.
  void close();

  // The limit of threads at once.
  int threads();
  void set_threads(int threads);
  [[nodiscard]] const SamplePlan& plan() const { return plan_; }
  [[nodiscard]] ReadAhead::Counts read_ahead() const { return ahead_.counts(); }
  [[nodiscard]] KeptPictures::Counts kept() const { return kept_.counts(); }
  // All 0 where no source has a cache of coefficients.
  [[nodiscard]] Transcoder::Counts transcoding();
  // The clocks of a seat in [0, seats()): of the threads that had it, one after the other.
  const ThreadStats& thread_stats(int seat);

 private:
  struct Submitted {
    Ticket ticket;
    std::shared_ptr<Batch> batch;
  };
  [[nodiscard]] bool has_work() const override { return !pending_.empty() && !closing_; }
  void work(int seat, Scratch& scratch) noexcept override;
  std::shared_ptr<Batch> next_batch(const Batch* finished);
  std::shared_ptr<Batch> find(Ticket ticket);
  void erase(Ticket ticket);
  static std::deque<Submitted>::iterator found_in(std::deque<Submitted>& queue, Ticket ticket);
  static Error closed();
  [[nodiscard]] std::vector<int64_t> records_of(std::vector<int64_t> ids) const;
  [[nodiscard]] std::vector<int64_t> records_of_windows(const std::vector<int64_t>& ids,
                                                        const std::vector<int64_t>& partners) const;
  std::shared_ptr<SharedRecords> shared_by(const BatchRequest& request);
  std::shared_ptr<void> announce_lists(const std::vector<int64_t>& ids);
  [[nodiscard]] std::vector<int64_t> records_of_mosaics(const std::vector<int64_t>& ids,
                                                        const std::vector<uint32_t>& draws,
                                                        uint64_t epoch,
                                                        const std::vector<int64_t>& partners);
  [[nodiscard]] uint32_t records_a_sample() const {
    return static_cast<uint32_t>(std::max<size_t>(1, plan_.fields.streams().size()));
  }
  [[nodiscard]] ReadAhead::Origin origin_of_record(uint64_t record) const;
  void check_usable() const;

  Pool& pool_;
  const Sources sources_;
  const SamplePlan plan_;
  const FallbackDecode fallback_;
  const uint32_t chunk_;  // positions claimed at a time
  KeptPictures kept_;
  SparePixels spare_;  // of batches' shared records
  ReadAhead ahead_;

  std::condition_variable done_;
  std::deque<Submitted> pending_;    // may have unclaimed positions
  std::deque<Submitted> submitted_;  // all that are not collected
  std::deque<Submitted> dropped_;  // by close(); made beforehand, because a new deque takes memory
  Ticket next_ticket_ = 1;
  bool closing_ = false;
  std::atomic<bool> closed_{false};
  std::unique_ptr<ThreadStats[]> stats_;  // by seat
  std::unique_ptr<Transcoder> transcoder_;  // nullptr: no source has a cache of coefficients
};

// Deletes an engine in the process that made it; leaks it in a forked child, and where a thread
// that works for it would pull the ground from under itself (Python's garbage collector may run in
// a decoder written in Python).
struct LeakAfterFork {
  pid_t owner = 0;
  void operator()(Engine* engine) const;
};
using EnginePointer = std::unique_ptr<Engine, LeakAfterFork>;

EnginePointer make_engine(Sources sources, SamplePlan plan, const ThreadPlan& threads,
                          FallbackDecode fallback, const ReadAheadPlan& read_ahead);

}  // namespace fastload
