// How many requests are in flight, which are sent twice, and when one is sent again: decisions
// without a clock, a thread or a network, so that tests can try each. All times are milliseconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace fastload {

using Millis = int64_t;

// All numbers of the schedule.
struct Schedule {
  // A request is given up when it has been tried so often, and so long: a store may be away for a
  // minute, and answers that come at once may be wrong a few times.
  int tries = 6;
  Millis patience = 90'000;
  Millis first_pause = 50, longest_pause = 5'000;  // between tries, doubling
  Millis connect = 5'000;                          // until there is a connection
  Millis stall = 5'000;                            // without a byte
  Millis hedge_floor = 50;                         // no request is late before
  double hedged_share = 0.02;                      // of all requests, at most
  double retried_share = 0.1;                      // of all requests without a longer pause
  size_t in_flight = 64, least_in_flight = 16, most_in_flight = 256;
  uint64_t part = 8 << 20;  // longer ranges are cut into parts
};

// The pause before the next try after `failures` ones: anything up to a bound that doubles ("full
// jitter", Brooker, 2015). `random` in [0, 1).
Millis pause(const Schedule& schedule, int failures, double random);

// How long requests took, by length.
class Latencies {
 public:
  void add(uint64_t length, Millis took);
  // Nothing before there are kEnough.
  [[nodiscard]] std::optional<Millis> p95(uint64_t length) const;
  // Of all lengths; 0: nothing is known.
  [[nodiscard]] Millis p50() const { return overall_[0]; }
  [[nodiscard]] Millis p95() const { return overall_[1]; }
  static constexpr size_t kEnough = 32;

 private:
  static constexpr size_t kKept = 256, kLengths = 5;
  struct Recent {
    std::vector<Millis> times;
    size_t next = 0;
    Millis p95 = 0;
  };
  static size_t index_of(uint64_t length);
  static Millis quantile(std::vector<Millis> times, double share);

  std::array<Recent, kLengths> by_length_;
  Recent all_;
  std::array<Millis, 2> overall_{};
};

// Sends late requests a second time.
class Hedging {
 public:
  explicit Hedging(const Schedule& schedule) : schedule_(schedule) {}
  // Whether a request that has waited so long is late; `p95` of its like.
  [[nodiscard]] bool is_late(Millis waited, std::optional<Millis> p95) const;
  // Whether another may be sent.
  [[nodiscard]] bool may_send(uint64_t requests, uint64_t hedges) const;

 private:
  const Schedule& schedule_;
};

// How many requests at once: half of them when the store is throttling, more as long as more bytes
// come of it.
class InFlight {
 public:
  explicit InFlight(const Schedule& schedule);
  [[nodiscard]] size_t limit() const { return limit_; }
  // Of bytes: as many as have come lately in kQueue, so that what is needed first does not wait for
  // what is needed later; but enough to find out that the line carries more.
  [[nodiscard]] uint64_t bytes_limit() const { return bytes_limit_; }
  static constexpr uint64_t kLeastBytes = 16 << 20;
  void throttled(Millis now);
  // So many bytes have come. `full`: no more requests could be sent, though they were wanted.
  void moved(Millis now, uint64_t bytes, bool full);

 private:
  void judge(double rate);

  const Schedule& schedule_;
  size_t limit_, before_;
  uint64_t bytes_limit_ = kLeastBytes;
  Millis window_ = -1, throttled_ = -1;
  uint64_t bytes_ = 0;
  bool full_ = true, growing_ = false;
  double rate_ = 0;  // bytes a millisecond, at the limit before
  int rest_ = 0;     // windows until growing is tried again
};

// Bounds what is asked for again when most requests fail: one that finds the budget empty is asked
// for again after the longest pause.
class RetryBudget {
 public:
  explicit RetryBudget(const Schedule& schedule) : schedule_(schedule) {}
  void succeeded();
  [[nodiscard]] bool take();

 private:
  static constexpr double kMost = 64;
  const Schedule& schedule_;
  double left_ = kMost;
};

// Where nobody answers, one request at a time tries whether that has changed.
class Breaker {
 public:
  explicit Breaker(const Schedule& schedule) : schedule_(schedule) {}
  void answered();
  void unreachable(Millis now, double random);
  [[nodiscard]] bool is_open() const { return failures_ >= kFailures; }
  // Whether a request may be sent now; while it is open, that one is the probe.
  [[nodiscard]] bool may_send(Millis now) const { return !is_open() || now >= probe_at_; }
  void sent(Millis now);
  [[nodiscard]] Millis probe_at() const { return probe_at_; }

 private:
  static constexpr int kFailures = 3;
  const Schedule& schedule_;
  int failures_ = 0;
  bool probing_ = false;
  Millis probe_at_ = 0;
};

}  // namespace fastload
