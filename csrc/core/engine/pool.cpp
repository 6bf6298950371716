#include "engine/pool.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <new>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

namespace fastload {
namespace {

thread_local bool is_pool_thread = false;
thread_local const Pool::Client* working_for = nullptr;

// Narrows a thread to those of `cpus` that it may use; leaves it alone if there are none.
void pin(pthread_t thread, const std::vector<int>& cpus) {
  cpu_set_t wanted, allowed;
  CPU_ZERO(&wanted);
  for (const int cpu : cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(static_cast<size_t>(cpu), &wanted);
  }
  if (CPU_COUNT(&wanted) == 0 || pthread_getaffinity_np(thread, sizeof(allowed), &allowed) != 0)
    return;
  CPU_AND(&wanted, &wanted, &allowed);
  if (CPU_COUNT(&wanted) > 0) pthread_setaffinity_np(thread, sizeof(wanted), &wanted);
}

// Whether a thread's stack could be had: pthread_create() says EAGAIN for lack of it, too.
bool has_room_for_stack() {
  pthread_attr_t defaults;
  size_t size = 8 << 20;
  if (pthread_getattr_default_np(&defaults) == 0) {
    pthread_attr_getstacksize(&defaults, &size);
    pthread_attr_destroy(&defaults);
  }
  void* const stack = ::mmap(nullptr, size, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (stack != MAP_FAILED) ::munmap(stack, size);
  return stack != MAP_FAILED;
}

// Whether the address space has a limit: then the threads that did start may have given back by
// now what they held when the next one found no room.
bool address_space_is_limited() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

Error cannot_start(size_t started, int wanted, const std::exception& why) {
  const bool no_memory =
      dynamic_cast<const std::bad_alloc*>(&why) != nullptr || !has_room_for_stack();
  const std::string text = "Only " + std::to_string(started) + " of " + std::to_string(wanted) +
                           " threads could be started: ";
  if (!no_memory && address_space_is_limited()) {
    return {ErrorKind::kMemory, text + why.what() +
                                    ". Lower num_workers, or raise the limits of memory "
                                    "(ulimit -v) and of threads (ulimit -u)."};
  }
  if (!no_memory) {
    return {ErrorKind::kState, text + why.what() + ". Lower num_workers or raise ulimit -u."};
  }
  return {ErrorKind::kMemory,
          text +
              "there is no memory for their stacks. Lower num_workers, or raise "
              "the limit of memory (ulimit -v)."};
}

}  // namespace

Pool::Client::Client(int limit, int seats, bool behind) : limit_(limit), behind_(behind) {
  if (limit < 1 || limit > seats || seats > kMaxThreads) {
    throw Error(ErrorKind::kValue,
                "The number of threads must be 1 to " + std::to_string(kMaxThreads) +
                    ". Found: " + std::to_string(limit) +
                    (limit < 1 || limit == seats ? "" : ", at most " + std::to_string(seats)) +
                    ".");
  }
  const auto count = static_cast<size_t>(seats);
  taken_.assign(count, 0);
  idle_.assign(count, 0);
  free_from_.assign(count, now_ns());
}

uint64_t Pool::Client::idle_ns(int seat) const {
  const auto i = static_cast<size_t>(seat);
  return idle_[i] + (taken_[i] == 0 && within_limit(seat) ? now_ns() - free_from_[i] : 0);
}

int Pool::Client::sit() {
  const auto place = std::find(taken_.begin(), taken_.end(), 0);
  const auto seat = static_cast<size_t>(place - taken_.begin());
  if (within_limit(static_cast<int>(seat))) idle_[seat] += now_ns() - free_from_[seat];
  taken_[seat] = 1;
  ++active_;
  return static_cast<int>(seat);
}

void Pool::Client::rise(int seat) {
  const auto i = static_cast<size_t>(seat);
  taken_[i] = 0;
  free_from_[i] = now_ns();
  --active_;
}

void Pool::Client::change_limit(int limit) {
  for (int seat = 0; seat < seats(); ++seat) {
    const auto i = static_cast<size_t>(seat);
    idle_[i] = idle_ns(seat);
    free_from_[i] = now_ns();
  }
  limit_ = limit;
}

Pool::Pool() : owner_(::getpid()) {}

Pool& Pool::of_process() {
  // No mutex here: it might be held by another thread while this one forks.
  static std::atomic<Pool*> current{nullptr};
  Pool* pool = current.load();
  while (pool == nullptr || pool->owner() != ::getpid()) {
    auto fresh = std::make_unique<Pool>();
    if (current.compare_exchange_weak(pool, fresh.get())) pool = fresh.release();
  }
  return *pool;
}

bool Pool::is_working_for(const Client& client) { return working_for == &client; }

int Pool::threads() {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(workers_.size());
}

void Pool::attach(Client& client, const std::vector<int>& cpus) {
  try {
    const std::lock_guard lock(mutex_);
    if (!cpus.empty()) cpus_ = cpus;
    clients_.push_back(&client);
    try {
      start_missing();
    } catch (const std::exception& error) {
      throw cannot_start(workers_.size(), client.limit_, error);
    }
  } catch (...) {
    detach(client);
    throw;
  }
}

void Pool::start_missing() {
  int wanted = 0;
  for (const Client* client : clients_) wanted = std::max(wanted, client->limit_);
  while (workers_.size() < static_cast<size_t>(wanted)) {
    const std::string name = "fastload-" + std::to_string(workers_.size());
    Worker& worker = workers_.emplace_back();
    try {
      worker.thread = start_thread(name.c_str(), [this, &worker] { run(worker); });
    } catch (...) {
      workers_.pop_back();
      throw;
    }
    pin(worker.thread.native_handle(), cpus_);
  }
}

Pool::Workers Pool::surplus() {
  Workers ended;
  // A pool thread can get here when Python's garbage collector runs in a decoder written in Python;
  // it cannot wait for itself. Whoever detaches next ends the threads.
  if (is_pool_thread) return ended;
  size_t wanted = 0;
  for (const Client* client : clients_) {
    wanted = std::max(wanted, static_cast<size_t>(client->limit_));
  }
  while (workers_.size() > wanted) {
    workers_.back().ending = true;
    ++ending_;
    ended.splice(ended.begin(), workers_, std::prev(workers_.end()));
  }
  return ended;
}

void Pool::join(Workers& workers) {
  for (Worker& worker : workers) worker.thread.join();
}

void Pool::detach(Client& client) {
  Workers ended;
  {
    std::unique_lock lock(mutex_);
    std::erase(clients_, &client);
    client.leave_.store(true, std::memory_order_relaxed);
    const int own = is_working_for(client) ? 1 : 0;
    left_.wait(lock, [&] { return client.active_ == own; });
    ended = surplus();
    update();
  }
  work_.notify_all();
  join(ended);
}

void Pool::set_limit(Client& client, int limit) {
  if (limit < 1 || limit > client.seats()) {
    throw Error(ErrorKind::kValue, "The number of threads must be 1 to " +
                                       std::to_string(client.seats()) +
                                       ". Found: " + std::to_string(limit));
  }
  const std::lock_guard lock(mutex_);
  const int before = client.limit_;
  client.change_limit(limit);
  // Threads that are no longer wanted sleep: ending them would make the caller wait for them.
  try {
    start_missing();
  } catch (const std::exception& error) {
    client.change_limit(before);
    throw cannot_start(workers_.size(), limit, error);
  }
  work_added();
}

void Pool::work_added() {
  update();
  wake();
}

void Pool::wake() {
  const bool wanted = std::any_of(clients_.begin(), clients_.end(),
                                  [](const Client* client) { return client->wants_thread(); });
  if (wanted) work_.notify_one();
}

// Who gets the next thread: the client that has fewest, in turn among equals, of those that stand
// behind the others only where these want none; null if none wants one.
Pool::Client* Pool::next_client() {
  const auto is_before = [](const Client& one, const Client& other) {
    return one.behind_ != other.behind_ ? other.behind_ : one.active_ < other.active_;
  };
  Client* best = nullptr;
  size_t place = 0;
  for (size_t i = 0; i < clients_.size(); ++i) {
    const size_t at = (turn_ + i) % clients_.size();
    Client* client = clients_[at];
    if (!client->wants_thread() || (best != nullptr && !is_before(*client, *best))) continue;
    best = client;
    place = at;
  }
  if (best != nullptr) turn_ = place + 1;
  return best;
}

// Tells threads to come back where they are needed more elsewhere.
void Pool::update() {
  for (Client* client : clients_) {
    bool leave = ending_ > 0 || client->active_ > client->limit_;
    for (const Client* other : clients_) {
      leave = leave || client->yields_to(*other);
    }
    if (client->should_leave() != leave) client->leave_.store(leave, std::memory_order_relaxed);
  }
}

void Pool::run(Worker& worker) {
  is_pool_thread = true;
  std::unique_lock lock(mutex_);
  while (!worker.ending) {
    Client* const client = next_client();
    if (client == nullptr) {
      work_.wait(lock);
      continue;
    }
    const int seat = client->sit();
    work_added();  // is there more to take?
    lock.unlock();
    working_for = client;
    client->work(seat, worker.scratch);
    working_for = nullptr;
    lock.lock();
    client->rise(seat);
    update();
    left_.notify_all();
  }
  --ending_;
  work_added();  // the notification may have been meant for somebody who goes on
}

}  // namespace fastload
