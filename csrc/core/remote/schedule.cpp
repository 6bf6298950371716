#include "remote/schedule.h"

#include <algorithm>

namespace fastload {
namespace {

constexpr Millis kWindow = 250;       // over which bytes are counted
constexpr Millis kThrottled = 1'000;  // answers to one burst are one sign
constexpr double kQueue = 250;        // of bytes in flight
constexpr double kWorth = 1.05;       // a quarter more requests is worth it
constexpr int kRest = 40;             // windows

}  // namespace

Millis pause(const Schedule& schedule, int failures, double random) {
  const int doublings = std::clamp(failures - 1, 0, 20);
  const Millis bound = std::min(schedule.longest_pause, schedule.first_pause << doublings);
  return static_cast<Millis>(static_cast<double>(bound) * random);
}

size_t Latencies::index_of(uint64_t length) {
  size_t index = 0;
  for (uint64_t bound = 64 << 10; length > bound && index + 1 < kLengths; bound *= 4) ++index;
  return index;
}

Millis Latencies::quantile(std::vector<Millis> times, double share) {
  const auto at =
      times.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(times.size() - 1));
  std::nth_element(times.begin(), at, times.end());
  return *at;
}

void Latencies::add(uint64_t length, Millis took) {
  for (Recent* const recent : {&by_length_[index_of(length)], &all_}) {
    if (recent->times.size() < kKept) {
      recent->times.push_back(took);
    } else {
      recent->times[recent->next] = took;
    }
    recent->next = (recent->next + 1) % kKept;
    if (recent->next % kEnough != 0) continue;  // sorting has its price
    recent->p95 = quantile(recent->times, 0.95);
    if (recent == &all_) overall_ = {quantile(recent->times, 0.5), recent->p95};
  }
}

std::optional<Millis> Latencies::p95(uint64_t length) const {
  const Recent& recent = by_length_[index_of(length)];
  if (recent.times.size() < kEnough) return {};
  return recent.p95;
}

bool Hedging::is_late(Millis waited, std::optional<Millis> p95) const {
  return p95 && waited >= std::max(schedule_.hedge_floor, 2 * *p95);
}

bool Hedging::may_send(uint64_t requests, uint64_t hedges) const {
  return static_cast<double>(hedges + 1) <= schedule_.hedged_share * static_cast<double>(requests);
}

InFlight::InFlight(const Schedule& schedule)
    : schedule_(schedule), limit_(schedule.in_flight), before_(limit_) {}

void InFlight::throttled(Millis now) {
  if (throttled_ >= 0 && now - throttled_ < kThrottled) return;
  throttled_ = now;
  limit_ = std::max(limit_ / 2, schedule_.least_in_flight);
  growing_ = false;
  rate_ = 0;
  rest_ = kRest;
}

void InFlight::moved(Millis now, uint64_t bytes, bool full) {
  if (window_ < 0) window_ = now;
  bytes_ += bytes;
  full_ = full_ && full;
  if (now - window_ < kWindow) return;
  const double rate = static_cast<double>(bytes_) / static_cast<double>(now - window_);
  bytes_limit_ = std::max(kLeastBytes, static_cast<uint64_t>(kQueue * rate));
  if (full_ && bytes_ > 0) judge(rate);
  window_ = now;
  bytes_ = 0;
  full_ = true;
}

// Only windows in which all the time as many were in flight as may be say anything.
void InFlight::judge(double rate) {
  if (growing_ && rate < kWorth * rate_) {
    limit_ = before_;
    growing_ = false;
    rest_ = kRest;
    return;
  }
  growing_ = false;
  if (rest_ > 0 && --rest_ > 0) return;
  const size_t more = std::min(limit_ + limit_ / 4, schedule_.most_in_flight);
  if (more == limit_) return;
  rate_ = rate;
  before_ = limit_;
  limit_ = more;
  growing_ = true;
}

void RetryBudget::succeeded() { left_ = std::min(left_ + schedule_.retried_share, kMost); }

bool RetryBudget::take() {
  if (left_ < 1) return false;
  left_ -= 1;
  return true;
}

void Breaker::answered() {
  failures_ = 0;
  probing_ = false;
}

// Of many requests that fail together the first ones open it, and then the probe's failures count.
void Breaker::unreachable(Millis now, double random) {
  if (is_open() && !probing_) return;
  probing_ = false;
  failures_ = std::min(failures_ + 1, 1 << 20);
  if (is_open()) probe_at_ = now + pause(schedule_, failures_ - kFailures + 1, 0.5 + random / 2);
}

// The next probe waits for this one's end, or for as long as that may take.
void Breaker::sent(Millis now) {
  if (!is_open()) return;
  probing_ = true;
  probe_at_ = now + schedule_.connect + schedule_.stall;
}

}  // namespace fastload
