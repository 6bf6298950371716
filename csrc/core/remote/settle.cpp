// What follows from an answer, or from none: the deciding half of EventLoop.
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "base/error.h"
#include "remote/event_loop.h"
#include "remote/words.h"

namespace fastload {
namespace {

constexpr int64_t kSkew = 300;        // seconds that clocks may differ
constexpr double kLeastJitter = 0.5;  // of the longest pause
constexpr Millis kSilence = 10'000;   // without a byte that could be used; then somebody is told

}  // namespace

void EventLoop::settle(Attempt& attempt, Attempt::Outcome outcome, Millis now) {
  Fetch& fetch = attempt.fetch();
  if (attempt.head().status != 0) breaker_.answered();
  in_flight_.moved(now, attempt.got(), !ready_.empty());
  drop(attempt);
  fetch.last_answer = attempt.reason();
  switch (outcome) {
    case Attempt::Outcome::kDone:
      if (attempt.head().status == 206) has_ranges_ = true;
      latencies_.add(fetch.length, now - attempt.started());
      budget_.succeeded();
      hedges_won_ += attempt.hedge ? 1 : 0;
      return end(fetch, nullptr);
    case Attempt::Outcome::kFinal:
      fetch.missing = attempt.head().status == 404;
      if (fetch.kind == Fetch::Kind::kHead && fetch.missing) return end(fetch, nullptr);
      ++failed_;
      return end(fetch, failure(fetch, attempt.reason(), now,
                                attempt.truncated() ? ErrorKind::kTruncated
                                : fetch.missing     ? ErrorKind::kMissing
                                                    : ErrorKind::kRefused));
    case Attempt::Outcome::kDenied:
    case Attempt::Outcome::kSkewed:
      return denied(fetch, attempt, outcome);
    default:
      return retry(fetch, attempt, outcome, now);
  }
}

void EventLoop::retry(Fetch& fetch, const Attempt& attempt, Attempt::Outcome outcome, Millis now) {
  const uint64_t there = attempt.from() + attempt.progress();
  // Without an ETag the object may be another one by the next try.
  if (!fetch.object->etag.empty() && there < fetch.length) fetch.done = std::max(fetch.done, there);
  if (outcome == Attempt::Outcome::kThrottled) {
    in_flight_.throttled(now);
    ++throttled_;
  }
  if (outcome == Attempt::Outcome::kUnreachable) {
    breaker_.unreachable(now, random());
    unreachable_ = attempt.reason();
  }
  notice(fetch, attempt, now);
  if (fetch.attempts > 0) return;  // the other one goes on
  const Millis wanted = attempt.head().retry_after.value_or(0) * 1000;
  // A server that has no ranges has none in a minute, either.
  const bool enough = fetch.tries >= schedule_.tries &&
                      (now - fetch.waits_since >= schedule_.patience ||
                       (attempt.lacks_ranges() && !has_ranges_));
  if (enough || wanted > schedule_.patience) {
    ++failed_;
    fetch.spent = true;
    return end(fetch, failure(fetch, attempt.reason(), now));
  }
  Millis wait = pause(schedule_, fetch.tries, random());
  if (wanted > 0) wait += wanted;
  if (!budget_.take()) {
    const double share = kLeastJitter + (1 - kLeastJitter) * random();
    wait =
        std::max(wait, static_cast<Millis>(share * static_cast<double>(schedule_.longest_pause)));
  }
  ++retries_;
  fetch.due = now + wait;
  delayed_.push_back(&fetch);
}

// Tells who waits why it takes so long: of answers that are wrong at once, because most of them
// stay wrong; of all else, which mostly passes, after a while.
void EventLoop::notice(Fetch& fetch, const Attempt& attempt, Millis now) {
  if (has_warned_ || !options_.warn) return;
  if (!attempt.refused() && now - fetch.waits_since < kSilence) return;
  has_warned_ = true;
  const std::lock_guard lock(fetch.call->mutex);
  fetch.call->notice = notice_text(options_, fetch, attempt.reason());
  fetch.call->changed.notify_all();
}

void EventLoop::denied(Fetch& fetch, const Attempt& attempt, Attempt::Outcome outcome) {
  drop_attempts(fetch);
  const int64_t clock = std::time(nullptr);
  const std::optional<std::time_t> date = attempt.head().date;
  const bool skewed = date && std::abs(*date - clock - clock_offset_) > kSkew;
  if (options_.signing == Signing::kSigV4 && skewed && !fetch.clock_set) {
    clock_offset_ = *date - clock;
    fetch.clock_set = true;
    ++retries_;
    return ready_.push_front(&fetch);
  }
  if (secrets_.version() != fetch.credentials) {  // others came meanwhile
    ++retries_;
    return ready_.push_front(&fetch);
  }
  if (outcome == Attempt::Outcome::kDenied && hand_over(fetch)) return;
  ++failed_;
  end(fetch, failure(fetch, attempt.reason(), now_ms(), ErrorKind::kRefused));
}

// To the thread that waits for it, which asks for other credentials and resumes it. False: there
// are none, or they came once.
bool EventLoop::hand_over(Fetch& fetch) {
  if (!options_.renew || fetch.renewed) return false;
  const std::lock_guard lock(fetch.call->mutex);
  fetch.call->denied.push_back(&fetch);
  fetch.call->changed.notify_all();
  return true;
}

// Attempts that stall are ended, late ones get a second.
void EventLoop::look_after(Millis now) {
  for (size_t i = active_.size(); i-- > 0;) {
    if (i >= active_.size()) continue;  // one that has ended has taken another along
    Attempt& attempt = *active_[i];
    if (attempt.moved()) attempt.last_moved = now;
    const Millis still = now - attempt.last_moved;
    if (still < schedule_.stall) continue;
    ++stalled_;
    attempt.stalled(still);
    settle(attempt, Attempt::Outcome::kAgain, now);
  }
  if (breaker_.is_open()) {
    give_up_waiting(now);
  } else {
    hedge(now);
  }
}

void EventLoop::hedge(Millis now) {
  for (size_t i = 0, count = active_.size(); i < count; ++i) {
    const Attempt& attempt = *active_[i];
    Fetch& fetch = attempt.fetch();
    if (fetch.hedged || fetch.tries > 1 || fetch.kind != Fetch::Kind::kRange) continue;
    if (!hedging_.is_late(now - attempt.started(), latencies_.p95(fetch.length))) continue;
    if (!hedging_.may_send(requests_, hedges_)) return;
    fetch.hedged = true;
    ++hedges_;
    send(fetch, now, true);
  }
}

// What waits for a store that cannot be reached does so no longer than what was tried.
void EventLoop::give_up_waiting(Millis now) {
  for (size_t i = ready_.size(); i-- > 0;) {
    Fetch& fetch = *ready_[i];
    if (fetch.waits_since < 0) fetch.waits_since = now;
    if (now - fetch.waits_since < schedule_.patience) continue;
    ++failed_;
    fetch.spent = true;
    end(fetch, failure(fetch, unreachable_, now));
  }
}

std::exception_ptr EventLoop::failure(const Fetch& fetch, const std::string& answer, Millis now,
                                      ErrorKind kind) const {
  return std::make_exception_ptr(
      Error(kind, failure_text(options_, fetch, answer, now - fetch.waits_since)));
}

}  // namespace fastload
