#include "remote/remote_store.h"

#include <stop_token>
#include <utility>

#include "base/error.h"
#include "io/read_scope.h"
#include "remote/words.h"

namespace fastload {
namespace {

constexpr auto kLook = std::chrono::milliseconds(100);  // for Ctrl-C

RemoteOptions checked(RemoteOptions options) {
  const bool http = options.base.starts_with("http://") || options.base.starts_with("https://");
  if (!http && options.signing != Signing::kPresigned) {
    throw Error(ErrorKind::kValue,
                "A store's address begins with http:// or https://; this one is " + options.base);
  }
  if (options.signing == Signing::kSigV4 && options.region.empty()) {
    throw Error(ErrorKind::kValue, options.name + ": signing needs a region (us-east-1, say)");
  }
  while (options.base.ends_with('/')) options.base.pop_back();
  return options;
}

std::shared_ptr<RemoteObject> object_of(const std::string& path) {
  auto object = std::make_shared<RemoteObject>();
  object->path = path;
  return object;
}

// A thread that waits for a call.
struct Waiting {
  Waiting(EventLoop& its_loop, Call& its_call) : loop(its_loop), call(its_call) {}

  EventLoop& loop;
  Call& call;
  std::atomic<bool> stopped{false};
  bool ending = false;
  bool acknowledged = true;  // no cancelling is on its way
  std::exception_ptr interruption;

  // Both with the call's lock held.
  [[nodiscard]] bool has_ended() const {
    return call.left == 0 && (acknowledged || call.cancelled);
  }
  [[nodiscard]] bool is_due() const {
    return !call.denied.empty() || !call.notice.empty() || (stopped && !ending);
  }

  // One that was denied: other credentials, once. Whoever has waited for another's renewal takes
  // what that has brought.
  void answer(Fetch& fetch, const RemoteOptions& options) {
    if (ending && !acknowledged) return;  // cancelled with the rest
    if (ending) return finish(fetch, cancelled(options.name));
    std::exception_ptr error = loop.renew(fetch);
    if (error != nullptr) return finish(fetch, std::move(error));
    loop.resume(fetch);
  }

  void look(const RemoteOptions& options) {
    try {
      options.interrupted();
    } catch (...) {
      interruption = std::current_exception();
    }
  }

  void end() {
    ending = true;
    acknowledged = !loop.cancel(call);
  }
};

}  // namespace

RemoteStore::RemoteStore(RemoteOptions options, Credentials credentials)
    : options_(checked(std::move(options))), secrets_(std::move(credentials)) {}

RemoteStore::~RemoteStore() {
  EventLoop* const loop = loop_.load();
  if (loop != nullptr && loop->is_own()) delete loop;  // a parent's thread is not here to be joined
}

// No lock: in a forked child nobody would open it.
EventLoop& RemoteStore::loop() {
  EventLoop* found = loop_.load();
  while (found == nullptr || !found->is_own()) {
    if (closed_) std::rethrow_exception(cancelled(options_.name));
    auto own = std::make_unique<EventLoop>(options_, secrets_);
    if (loop_.compare_exchange_strong(found, own.get())) return *own.release();
  }
  return *found;
}

void RemoteStore::close() {
  closed_ = true;
  EventLoop* const loop = loop_.load();
  if (loop != nullptr && loop->is_own()) loop->close();
}

RemoteCounts RemoteStore::counts() const {
  const EventLoop* const loop = loop_.load();
  return loop == nullptr ? RemoteCounts{} : loop->counts();
}

void RemoteStore::came_damaged(const std::string& record) noexcept try {
  EventLoop* const loop = loop_.load();
  if (loop != nullptr) loop->count_damaged();
  if (options_.warn && !damage_said_.exchange(true)) options_.warn(damage_text(record));
} catch (const std::exception&) {
  return;  // no memory for words
}

size_t RemoteStore::in_flight() const {
  const EventLoop* const loop = loop_.load();
  const size_t limit = loop == nullptr ? options_.schedule.in_flight : loop->limit();
  return limit + limit / 4;  // some have to wait, or nothing shows that more would be better
}

void RemoteStore::run(Call& call) {
  EventLoop& own = loop();
  own.submit(call);
  wait(own, call);
}

// Until all has ended; asks for other credentials meanwhile. What interrupts it is thrown when
// nothing of the call is in work any more.
void RemoteStore::wait(EventLoop& loop, Call& call) {
  Waiting waiting(loop, call);
  const std::stop_callback callback(ReadScope::token(), [&] {
    const std::lock_guard lock(call.mutex);
    waiting.stopped = true;
    call.changed.notify_all();
  });
  std::unique_lock lock(call.mutex);
  while (!waiting.has_ended()) {
    const bool woken =
        call.changed.wait_for(lock, kLook, [&] { return waiting.has_ended() || waiting.is_due(); });
    if (waiting.has_ended()) break;
    std::deque<Fetch*> denied;
    denied.swap(call.denied);
    const std::string notice = std::exchange(call.notice, {});
    lock.unlock();
    if (!notice.empty()) options_.warn(notice);
    for (Fetch* const fetch : denied) waiting.answer(*fetch, options_);
    if (!woken && options_.interrupted && !waiting.ending) waiting.look(options_);
    if ((waiting.stopped || waiting.interruption != nullptr) && !waiting.ending) waiting.end();
    lock.lock();
  }
  const std::string notice = std::exchange(call.notice, {});
  lock.unlock();
  if (!notice.empty()) options_.warn(notice);
  if (waiting.interruption != nullptr) std::rethrow_exception(waiting.interruption);
}

std::optional<RemoteStore::Head> RemoteStore::head(const std::string& path) {
  Call call;
  Fetch& fetch = call.fetches.emplace_back();
  fetch.kind = Fetch::Kind::kHead;
  fetch.object = object_of(path);
  run(call);
  if (fetch.error != nullptr) std::rethrow_exception(fetch.error);
  if (fetch.missing) return {};
  return Head{fetch.length, fetch.object->etag};
}

std::vector<uint8_t> RemoteStore::get(const std::string& path, uint64_t begin,
                                      std::optional<uint64_t> end, uint64_t most) {
  if (end) {
    if (*end < begin) {
      throw Error(ErrorKind::kValue, name() + "/" + path + ": a range from " +
                                         std::to_string(begin) + " to " + std::to_string(*end));
    }
    std::vector<uint8_t> bytes(*end - begin);
    read_into(path, begin, bytes);
    return bytes;
  }
  Call call;
  Fetch& fetch = call.fetches.emplace_back();
  fetch.kind = Fetch::Kind::kWhole;
  fetch.object = object_of(path);
  fetch.begin = begin;
  fetch.most = most;
  run(call);
  if (fetch.error != nullptr) std::rethrow_exception(fetch.error);
  return std::move(fetch.whole);
}

void RemoteStore::read_into(const std::string& path, uint64_t begin, std::span<uint8_t> memory) {
  RangeRequest range{begin, memory.size(), memory.data(), nullptr, nullptr};
  read(object_of(path), {&range, 1});
  if (range.error != nullptr) std::rethrow_exception(range.error);
}

void RemoteStore::read(const std::shared_ptr<RemoteObject>& object,
                       std::span<RangeRequest> ranges) {
  Call call;
  const uint64_t part = options_.schedule.part;
  std::vector<RangeRequest*> owners;
  for (RangeRequest& range : ranges) {
    for (uint64_t at = 0; at < range.length; at += part) {
      Fetch& fetch = call.fetches.emplace_back();
      fetch.object = object;
      fetch.begin = range.offset + at;
      fetch.length = std::min<uint64_t>(part, range.length - at);
      fetch.memory = range.memory + at;
      owners.push_back(&range);
    }
    range.bytes = range.memory;
  }
  if (call.fetches.empty()) return;
  run(call);
  for (size_t i = 0; i < owners.size(); ++i) {
    if (call.fetches[i].error == nullptr || owners[i]->error != nullptr) continue;
    owners[i]->bytes = nullptr;
    owners[i]->error = call.fetches[i].error;
    owners[i]->spent = call.fetches[i].spent;
  }
}

namespace {

class RemoteSource final : public ByteSource {
 public:
  RemoteSource(std::shared_ptr<RemoteStore> store, const std::string& path, uint64_t size,
               const std::string& etag)
      : ByteSource(store->name() + "/" + path, size),
        store_(std::move(store)),
        object_(std::make_shared<RemoteObject>()) {
    object_->path = path;
    object_->has_size = true;
    object_->size = size;
    object_->etag = etag;
  }

  using ByteSource::read;
  void read(std::span<RangeRequest> ranges, bool /*keep*/) noexcept override {
    try {
      store_->read(object_, ranges);
    } catch (...) {  // also what interrupts: Ctrl-C's is Python's
      for (RangeRequest& range : ranges) {
        range.bytes = nullptr;
        range.error = std::current_exception();
      }
    }
  }
  // A request costs as much CPU time as 50 to 100 KB, and a place among those in flight as much of
  // an ordinary line as 30 KB; the second one of a split may have been a neighbour's, too.
  [[nodiscard]] Joins joins() const noexcept override {
    return {.gap = 64 << 10, .longest = store_->longest(), .others = 16 << 10, .split = 128 << 10};
  }
  [[nodiscard]] bool is_far() const noexcept override { return true; }
  [[nodiscard]] size_t in_flight() const noexcept override { return store_->in_flight(); }
  // Bytes come over the network each time, so they are checked each time.
  [[nodiscard]] bool is_changed() const noexcept override { return true; }
  void came_damaged(const std::string& record) noexcept override { store_->came_damaged(record); }
  [[nodiscard]] std::unique_ptr<ByteSource> open_again() const override {
    return open_remote(store_, object_->path, size(), "");
  }

 private:
  const std::shared_ptr<RemoteStore> store_;
  const std::shared_ptr<RemoteObject> object_;
};

}  // namespace

std::unique_ptr<ByteSource> open_remote(std::shared_ptr<RemoteStore> store, const std::string& path,
                                        uint64_t size, const std::string& etag) {
  return std::make_unique<RemoteSource>(std::move(store), path, size, etag);
}

}  // namespace fastload
