#include "remote/event_loop.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/thread.h"
#include "remote/words.h"

namespace fastload {
namespace {

constexpr int kIdle = 5'000;  // milliseconds until an idle thread looks around
constexpr int kBusy = 20;     // the same of one with requests in flight

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
  try {
    thread_ = start_thread("fastload-remote", [this] { run(); });
  } catch (const std::exception&) {
    curl_.multi_cleanup(multi_);
    throw;
  }
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
  return {requests_, bytes_,  retries_, hedges_,       hedges_won_, throttled_, stalled_,
          failed_,   damaged_, active_count_, limit_, p50_,        p95_};
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
         bytes_in_flight_ + fetch.length <= in_flight_.bytes_limit();
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
    idle_.back()->prepare(fetch, options_, secrets_, signer_, now, clock_offset_);
  } catch (const std::exception&) {
    if (fetch.attempts == 0) end(fetch, std::current_exception());
    return;
  }
  Attempt& attempt = *idle_.back();
  attempt.hedge = hedge;
  if (curl_.multi_add_handle(multi_, attempt.handle()) != CURLM_OK) {
    if (fetch.attempts == 0) end(fetch, failure(fetch, "no memory for a request", now));
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
    const Attempt::Outcome outcome = ended.finish(code, options_);
    outcome == Attempt::Outcome::kMoved ? follow(ended, now) : settle(ended, outcome, now);
  }
}

void EventLoop::follow(Attempt& attempt, Millis now) {
  curl_.multi_remove_handle(multi_, attempt.handle());
  try {
    attempt.follow(options_);
    if (curl_.multi_add_handle(multi_, attempt.handle()) == CURLM_OK) return;
  } catch (const std::exception&) {
    // No memory for it, as where libcurl has none.
  }
  Fetch& fetch = attempt.fetch();
  drop(attempt);
  if (fetch.attempts == 0) end(fetch, failure(fetch, "no memory for a request", now));
}

int EventLoop::timeout(Millis now) const {
  Millis until = active_.empty() ? kIdle : kBusy;
  for (const Fetch* const fetch : delayed_) until = std::min(until, fetch->due - now);
  if (!ready_.empty() && breaker_.is_open()) until = std::min(until, breaker_.probe_at() - now);
  return static_cast<int>(std::max<Millis>(until, 0));
}

}  // namespace fastload
