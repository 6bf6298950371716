#include "remote/event_loop.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <set>
#include <utility>

#include "base/blocked_signals.h"
#include "base/clock.h"
#include "base/error.h"
#include "remote/words.h"

namespace fastload {
namespace {

constexpr int kIdle = 5'000;          // milliseconds until an idle thread looks around
constexpr int kBusy = 20;             // the same of one with requests in flight
constexpr int64_t kSkew = 300;        // seconds that clocks may differ
constexpr double kLeastJitter = 0.5;  // of the longest pause

Millis now_ms() { return static_cast<Millis>(now_ns() / 1'000'000); }

CURLM* make_multi(const Curl& curl, const Schedule& schedule) {
  CURLM* const multi = curl.multi_init();
  if (multi == nullptr) throw Error(ErrorKind::kMemory, "no memory for a store's connections");
  // With as many as are in flight, a hedge would close a connection that is needed.
  curl.multi_setopt(multi, CURLMOPT_MAXCONNECTS, static_cast<long>(2 * schedule.most_in_flight));
  curl.multi_setopt(multi, CURLMOPT_PIPELINING, static_cast<long>(CURLPIPE_NOTHING));
  return multi;
}

// Of the process: ended before the libraries that they use are.
std::set<EventLoop*>& all_loops() {
  static auto& loops = *new std::set<EventLoop*>;
  return loops;
}

void close_all() {
  std::set<EventLoop*> loops;
  {
    const std::lock_guard lock(Secrets::lock());
    loops = all_loops();
  }
  for (EventLoop* const loop : loops) {
    if (loop->is_own()) loop->close();
  }
}

}  // namespace

EventLoop::EventLoop(const RemoteOptions& options, const Secrets& secrets)
    : options_(options),
      schedule_(options.schedule),
      secrets_(secrets),
      curl_(curl()),
      process_(::getpid()),
      multi_(make_multi(curl_, schedule_)),
      hedging_(schedule_),
      in_flight_(schedule_),
      budget_(schedule_),
      breaker_(schedule_),
      random_(static_cast<uint32_t>(now_ns() ^ static_cast<uint64_t>(process_))),
      limit_(schedule_.in_flight) {
  const BlockedSignals blocked;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::exception&) {
    curl_.multi_cleanup(multi_);
    throw;
  }
  ::pthread_setname_np(thread_.native_handle(), "fastload-remote");
  static const int at_exit = std::atexit(close_all);
  static_cast<void>(at_exit);
  const std::lock_guard lock(Secrets::lock());
  all_loops().insert(this);
}

EventLoop::~EventLoop() {
  {
    const std::lock_guard lock(Secrets::lock());
    all_loops().erase(this);
  }
  close();
  active_.clear();
  idle_.clear();
  curl_.multi_cleanup(multi_);
}

bool EventLoop::is_own() const noexcept { return process_ == ::getpid(); }

bool EventLoop::post(Command command) {
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return false;
    commands_.push_back(command);
  }
  curl_.multi_wakeup(multi_);
  return true;
}

void EventLoop::submit(Call& call) {
  call.left = call.fetches.size();
  for (Fetch& fetch : call.fetches) fetch.call = &call;
  if (post({Command::Kind::kSubmit, &call, nullptr})) return;
  for (Fetch& fetch : call.fetches) finish(fetch, cancelled(options_.name));
}

bool EventLoop::cancel(Call& call) { return post({Command::Kind::kCancel, &call, nullptr}); }

void EventLoop::resume(Fetch& fetch) {
  if (!post({Command::Kind::kResume, nullptr, &fetch})) finish(fetch, cancelled(options_.name));
}

std::exception_ptr EventLoop::renew(Fetch& fetch) noexcept try {
  const std::lock_guard lock(renewing_);
  if (fetch.tries > 0 && secrets_.version() != fetch.credentials) return nullptr;
  fetch.renewed = true;
  options_.renew(fetch.object->path);
  return nullptr;
} catch (...) {
  return std::current_exception();
}

void EventLoop::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  curl_.multi_wakeup(multi_);
  if (thread_.joinable()) thread_.join();
}

RemoteCounts EventLoop::counts() const {
  return {requests_, bytes_,  retries_,      hedges_, hedges_won_, throttled_,
          stalled_,  failed_, active_count_, limit_,  p50_,        p95_};
}

void EventLoop::run() noexcept {
  while (take_commands()) {
    const Millis now = now_ms();
    for (const Command& command : taken_) obey(command);
    try {
      work(now);
    } catch (const std::exception&) {
      cancel_all();  // no memory for the thread's own lists: nothing may wait for ever
    }
    curl_.multi_poll(multi_, nullptr, 0, timeout(now), nullptr);
  }
  cancel_all();
  for (const Command& command : taken_) {
    obey(command);
    cancel_all();
  }
}

// False when the object is being closed.
bool EventLoop::take_commands() {
  const std::lock_guard lock(mutex_);
  taken_.clear();
  taken_.swap(commands_);
  return !closing_;
}

void EventLoop::enqueue(Fetch& fetch) noexcept {
  try {
    ready_.push_back(&fetch);
  } catch (const std::exception&) {
    finish(fetch, std::current_exception());
  }
}

void EventLoop::obey(const Command& command) noexcept {
  if (command.kind == Command::Kind::kResume) return enqueue(*command.fetch);
  Call& call = *command.call;
  if (command.kind == Command::Kind::kSubmit) {
    // A call may end, and be gone, with the last of them.
    for (size_t count = call.fetches.size(), i = 0; i < count; ++i) enqueue(call.fetches[i]);
    return;
  }
  for (Fetch& fetch : call.fetches) {
    if (!fetch.finished) end(fetch, cancelled(options_.name));
  }
  const std::lock_guard lock(call.mutex);
  call.cancelled = true;
  call.changed.notify_all();
}

void EventLoop::work(Millis now) {
  release_due(now);
  start(now);
  int running = 0;
  curl_.multi_perform(multi_, &running);
  collect(now_ms());
  look_after(now_ms());
  start(now_ms());
  active_count_ = active_.size();
  limit_ = in_flight_.limit();
  p50_ = latencies_.p50();
  p95_ = latencies_.p95();
}

// What was tried before is needed first.
void EventLoop::release_due(Millis now) {
  std::erase_if(delayed_, [&](Fetch* fetch) {
    if (fetch->due > now) return false;
    ready_.push_front(fetch);
    return true;
  });
}

bool EventLoop::has_room(const Fetch& fetch) const {
  if (active_.empty()) return true;
  return active_.size() < in_flight_.limit() &&
         bytes_in_flight_ + fetch.length <= in_flight_.limit() * kBytesInFlight;
}

void EventLoop::start(Millis now) {
  while (!ready_.empty() && has_room(*ready_.front()) && breaker_.may_send(now)) {
    Fetch& fetch = *ready_.front();
    ready_.pop_front();
    breaker_.sent(now);
    send(fetch, now, false);
  }
}

void EventLoop::send(Fetch& fetch, Millis now, bool hedge) {
  if (fetch.waits_since < 0) fetch.waits_since = now;
  if (options_.signing == Signing::kPresigned && !secrets_.url(fetch.object->path)) {
    if (hand_over(fetch)) return;
  }
  try {
    if (idle_.empty()) idle_.push_back(std::make_unique<Attempt>(curl_));
    active_.reserve(active_.size() + 1);
    idle_.reserve(active_.size() + idle_.size() + 1);  // for the way back
    idle_.back()->prepare(fetch, options_, secrets_, now, clock_offset_);
  } catch (const std::exception&) {
    if (fetch.attempts == 0) end(fetch, std::current_exception());
    return;
  }
  Attempt& attempt = *idle_.back();
  attempt.hedge = hedge;
  if (curl_.multi_add_handle(multi_, attempt.handle()) != CURLM_OK) {
    if (fetch.attempts == 0) end(fetch, failure(fetch, "no memory for a request", false, now));
    return;
  }
  active_.push_back(std::move(idle_.back()));
  idle_.pop_back();
  bytes_in_flight_ += attempt.counted();
  ++fetch.attempts;
  if (!hedge) ++fetch.tries;
  ++requests_;
}

// Takes the attempt out of work.
void EventLoop::drop(Attempt& attempt) {
  const auto found = std::find_if(active_.begin(), active_.end(),
                                  [&](const auto& other) { return other.get() == &attempt; });
  curl_.multi_remove_handle(multi_, attempt.handle());
  bytes_ += attempt.got();
  bytes_in_flight_ -= attempt.counted();
  --attempt.fetch().attempts;
  idle_.push_back(std::move(*found));
  *found = std::move(active_.back());
  active_.pop_back();
}

void EventLoop::drop_attempts(const Fetch& fetch) {
  while (fetch.attempts > 0) {
    const auto found = std::find_if(active_.begin(), active_.end(), [&](const auto& attempt) {
      return &attempt->fetch() == &fetch;
    });
    drop(**found);
  }
}

void EventLoop::end(Fetch& fetch, std::exception_ptr error) {
  drop_attempts(fetch);
  std::erase(ready_, &fetch);
  std::erase(delayed_, &fetch);
  finish(fetch, std::move(error));
}

void EventLoop::cancel_all() noexcept {
  while (!active_.empty()) {
    Fetch& fetch = active_.back()->fetch();
    drop_attempts(fetch);
    finish(fetch, cancelled(options_.name));
  }
  for (Fetch* const fetch : ready_) finish(*fetch, cancelled(options_.name));
  for (Fetch* const fetch : delayed_) finish(*fetch, cancelled(options_.name));
  ready_.clear();
  delayed_.clear();
}

void EventLoop::collect(Millis now) {
  int left = 0;
  while (const CURLMsg* const message = curl_.multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    char* attempt = nullptr;
    const CURLcode code = message->data.result;
    curl_.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &attempt);
    auto& ended = *reinterpret_cast<Attempt*>(attempt);
    settle(ended, ended.finish(code), now);
  }
}

void EventLoop::settle(Attempt& attempt, Attempt::Outcome outcome, Millis now) {
  Fetch& fetch = attempt.fetch();
  if (attempt.head().status != 0) breaker_.answered();
  in_flight_.moved(now, attempt.got(), !ready_.empty());
  drop(attempt);
  fetch.last_answer = attempt.reason();
  switch (outcome) {
    case Attempt::Outcome::kDone:
      latencies_.add(fetch.length, now - attempt.started());
      budget_.succeeded();
      hedges_won_ += attempt.hedge ? 1 : 0;
      return end(fetch, nullptr);
    case Attempt::Outcome::kFinal:
      if (fetch.kind == Fetch::Kind::kHead && attempt.head().status == 404) {
        fetch.missing = true;
        return end(fetch, nullptr);
      }
      ++failed_;
      return end(fetch, failure(fetch, attempt.reason(), attempt.truncated(), now));
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
  if (fetch.attempts > 0) return;  // the other one goes on
  const Millis wanted = attempt.head().retry_after.value_or(0) * 1000;
  const bool enough =
      fetch.tries >= schedule_.tries && now - fetch.waits_since >= schedule_.patience;
  if (enough || wanted > schedule_.patience) {
    ++failed_;
    return end(fetch, failure(fetch, attempt.reason(), false, now));
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
  end(fetch, failure(fetch, attempt.reason(), false, now_ms()));
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
    end(fetch, failure(fetch, unreachable_, false, now));
  }
}

int EventLoop::timeout(Millis now) const {
  Millis until = active_.empty() ? kIdle : kBusy;
  for (const Fetch* const fetch : delayed_) until = std::min(until, fetch->due - now);
  if (!ready_.empty() && breaker_.is_open()) until = std::min(until, breaker_.probe_at() - now);
  return static_cast<int>(std::max<Millis>(until, 0));
}

std::exception_ptr EventLoop::failure(const Fetch& fetch, const std::string& answer, bool truncated,
                                      Millis now) const {
  return std::make_exception_ptr(
      Error(truncated ? ErrorKind::kTruncated : ErrorKind::kIo,
            failure_text(options_, fetch, answer, now - fetch.waits_since)));
}

}  // namespace fastload
