// The thread that talks with a store: it sends what is asked for, again where that fails, and twice
// where it is late.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "remote/attempt.h"
#include "remote/fetch.h"
#include "remote/options.h"
#include "remote/schedule.h"
#include "remote/secrets.h"

namespace fastload {

struct RemoteCounts {
  uint64_t requests = 0;    // sent, again and twice too
  uint64_t bytes = 0;       // of bodies
  uint64_t retries = 0;     // sent again
  uint64_t hedges = 0;      // sent twice
  uint64_t hedges_won = 0;  // where the second was first
  uint64_t throttled = 0;   // answers 429 and 503
  uint64_t stalled = 0;     // requests without a byte for too long
  uint64_t failed = 0;      // given up
  uint64_t damaged = 0;     // records that came with wrong bytes, and were asked for again
  uint64_t in_flight = 0;   // now
  uint64_t limit = 0;       // of requests in flight, now
  Millis p50 = 0, p95 = 0;  // of the last requests
};

// DESIGN. Other threads put fetches and what happens to them into a list of commands and wake the
// thread; all else is the thread's own and has no lock. It never waits but in libcurl's poll, so
// whoever cancels a call has it back at once. After fork() a child has no such thread: is_own() is
// false there, and its store makes another.
class EventLoop {
 public:
  // Throws Error(kIo) without libcurl.
  EventLoop(const RemoteOptions& options, const Secrets& secrets);
  ~EventLoop();  // as close()
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  [[nodiscard]] bool is_own() const noexcept;
  // Each fetch of the call ends, with an error or without. After close() at once.
  void submit(Call& call);
  // The same, soon; true: Call::cancelled is set after that, and until then the call must live.
  bool cancel(Call& call);
  // One of `denied` is tried again, or fails.
  void resume(Fetch& fetch);
  // Asks for other credentials for one that was denied; others may have done so meanwhile. An
  // error: there are none.
  std::exception_ptr renew(Fetch& fetch) noexcept;
  // Ends everything. Idempotent.
  void close();

  // A record came with other bytes than were packed, and is asked for again.
  void count_damaged() noexcept { ++damaged_; }
  [[nodiscard]] RemoteCounts counts() const;
  [[nodiscard]] size_t limit() const { return limit_; }

 private:
  struct Command {
    enum class Kind { kSubmit, kCancel, kResume } kind;
    Call* call;
    Fetch* fetch;
  };
  using Attempts = std::vector<std::unique_ptr<Attempt>>;

  void run() noexcept;
  bool post(Command command);
  bool take_commands();
  void obey(const Command& command) noexcept;
  void enqueue(Fetch& fetch) noexcept;
  void work(Millis now);
  void release_due(Millis now);
  void start(Millis now);
  bool has_room(const Fetch& fetch) const;
  void send(Fetch& fetch, Millis now, bool hedge);
  void collect(Millis now);
  void follow(Attempt& attempt, Millis now);
  void settle(Attempt& attempt, Attempt::Outcome outcome, Millis now);
  void retry(Fetch& fetch, const Attempt& attempt, Attempt::Outcome outcome, Millis now);
  void notice(Fetch& fetch, const Attempt& attempt, Millis now);
  void denied(Fetch& fetch, const Attempt& attempt, Attempt::Outcome outcome);
  bool hand_over(Fetch& fetch);
  void look_after(Millis now);
  void hedge(Millis now);
  void give_up_waiting(Millis now);
  void drop(Attempt& attempt);
  void drop_attempts(const Fetch& fetch);
  void end(Fetch& fetch, std::exception_ptr error);
  void cancel_all() noexcept;
  [[nodiscard]] int timeout(Millis now) const;
  [[nodiscard]] std::exception_ptr failure(
      const Fetch& fetch, const std::string& answer, Millis now,
      ErrorKind kind = ErrorKind::kIo) const;
  static Millis now_ms() { return static_cast<Millis>(now_ns() / 1'000'000); }
  double random() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  const RemoteOptions& options_;
  const Schedule& schedule_;
  const Secrets& secrets_;
  const Curl& curl_;
  const pid_t process_;
  CURLM* const multi_;

  std::mutex renewing_;  // by one thread at a time

  std::mutex mutex_;  // guards the following
  std::vector<Command> commands_;
  bool closing_ = false;

  // The thread's.
  std::vector<Command> taken_;
  std::deque<Fetch*> ready_;
  std::vector<Fetch*> delayed_;
  Attempts active_, idle_;
  uint64_t bytes_in_flight_ = 0;
  Signer signer_;
  Latencies latencies_;
  Hedging hedging_;
  InFlight in_flight_;
  RetryBudget budget_;
  Breaker breaker_;
  std::string unreachable_;   // why
  int64_t clock_offset_ = 0;  // seconds that the store's clock is ahead
  bool has_ranges_ = false;   // a range came
  bool has_warned_ = false;
  std::minstd_rand random_;

  std::atomic<uint64_t> requests_{0}, bytes_{0}, retries_{0}, hedges_{0}, hedges_won_{0},
      throttled_{0}, stalled_{0}, failed_{0}, damaged_{0}, active_count_{0}, limit_;
  std::atomic<Millis> p50_{0}, p95_{0};
  std::thread thread_;
};

}  // namespace fastload
