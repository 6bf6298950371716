// The decoding threads and the batches they fill.
//
// DESIGN. Batches are submitted in the order in which they will be consumed. The unit of work is
// one sample: a thread claims positions of the oldest batch that has any left, so a slow sample
// stalls nobody, and batches still complete roughly in order; the consumer waits for them in exact
// order, by ticket. One mutex guards the queue; it is taken once per few samples. Threads sleep on
// `work_`, consumers on `done_`. A batch's memory is let go only by collect() or cancel(), on the
// caller's thread. After fork() the child has no threads: every call there throws, and the engine
// must be leaked (LeakAfterFork), for locks may be held and scratch memory be in use for ever.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "collate/batch.h"
#include "prefetch/producer.h"
#include "prefetch/stats.h"

namespace fastload {

class Engine {
 public:
  // Starts `threads` >= 1 threads. `reader` must outlive the engine.
  Engine(Reader& reader, SamplePlan plan, int threads, FallbackDecode fallback);
  ~Engine();  // as close()
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  using Ticket = uint64_t;
  // Queues a batch behind the ones submitted before. Throws Error(kValue, kState).
  Ticket submit(BatchRequest request);
  // Waits up to `seconds` until the batch is complete; true if it is.
  bool wait(Ticket ticket, double seconds);
  // Takes a complete batch out of the engine and returns its faults. Throws Error(kState) if it is
  // not complete.
  std::vector<SampleFault> collect(Ticket ticket);
  // Drops one batch, waiting for the samples of it that are being decoded right now.
  void cancel(Ticket ticket);
  // Ends all threads after their current sample; further calls throw Error(kState). Idempotent.
  void close();

  [[nodiscard]] int threads() const { return static_cast<int>(threads_.size()); }
  [[nodiscard]] const SamplePlan& plan() const { return plan_; }
  [[nodiscard]] const ThreadStats& thread_stats(int thread) const { return stats_[thread]; }

 private:
  struct Entry {
    Ticket ticket;
    std::shared_ptr<Batch> batch;
  };
  void start_threads(int threads);
  void run(int thread);
  std::shared_ptr<Batch> next_batch(int thread);
  std::shared_ptr<Batch> find(Ticket ticket);
  void erase(Ticket ticket);
  void check_usable() const;

  const SamplePlan plan_;
  const FallbackDecode fallback_;
  const pid_t owner_;
  uint32_t chunk_;  // positions claimed at a time

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  std::deque<Entry> pending_;   // may have unclaimed positions
  std::vector<Entry> entries_;  // all that are not collected
  Ticket next_ticket_ = 1;
  bool closing_ = false;
  std::atomic<bool> closed_{false};

  std::unique_ptr<ThreadStats[]> stats_;
  std::vector<std::unique_ptr<Producer>> producers_;  // one a thread
  std::vector<std::thread> threads_;
};

// Deletes an engine in the process that made it, and leaks it in a forked child.
struct LeakAfterFork {
  pid_t owner = 0;
  void operator()(Engine* engine) const;
};
using EnginePointer = std::unique_ptr<Engine, LeakAfterFork>;

EnginePointer make_engine(Reader& reader, SamplePlan plan, int threads, FallbackDecode fallback);

}  // namespace fastload
