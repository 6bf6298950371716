#include "prefetch/engine.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>

namespace fastload {
namespace {

// Small samples (28x28 digits) cost about as much as claiming them, so they are claimed in groups.
uint32_t claim_size(size_t sample_bytes) {
  constexpr size_t kGroupBytes = 64 << 10;
  return static_cast<uint32_t>(
      std::clamp<size_t>(kGroupBytes / std::max<size_t>(sample_bytes, 1), 1, 32));
}

}  // namespace

Engine::Engine(Reader& reader, SamplePlan plan, int threads, FallbackDecode fallback)
    : plan_(plan),
      fallback_(std::move(fallback)),
      owner_(::getpid()),
      chunk_(claim_size(plan.sample_bytes())) {
  if (threads < 1 || threads > 4096) {
    throw Error(ErrorKind::kValue,
                "The number of threads must be 1 to 4096. Found: " + std::to_string(threads));
  }
  const auto count = static_cast<size_t>(threads);
  stats_ = std::make_unique<ThreadStats[]>(count);
  for (size_t i = 0; i < count; ++i) {
    producers_.push_back(std::make_unique<Producer>(reader, plan_, fallback_, stats_[i]));
  }
  start_threads(threads);
}

void Engine::start_threads(int threads) {
  // Signals belong to the interpreter's main thread: ours block all but those for their own faults.
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  std::string failure;
  try {
    threads_.reserve(static_cast<size_t>(threads));
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, i] { run(i); });
      pthread_setname_np(threads_.back().native_handle(),
                         ("fastload-" + std::to_string(i)).c_str());
    }
  } catch (const std::exception& error) {
    failure = error.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failure.empty()) return;
  const size_t started = threads_.size();
  close();
  throw Error(ErrorKind::kState, "Only " + std::to_string(started) + " of " +
                                     std::to_string(threads) + " threads could be started: " +
                                     failure + ". Lower num_workers or raise ulimit -u.");
}

Engine::~Engine() { close(); }

void LeakAfterFork::operator()(Engine* engine) const {
  if (::getpid() == owner) delete engine;
}

EnginePointer make_engine(Reader& reader, SamplePlan plan, int threads, FallbackDecode fallback) {
  return {new Engine(reader, plan, threads, std::move(fallback)), LeakAfterFork{::getpid()}};
}

void Engine::check_usable() const {
  if (::getpid() != owner_) {
    throw Error(ErrorKind::kState,
                "This loader was created before fork() and its threads live in the parent process. "
                "Create the DataLoader in the child.");
  }
  if (closed_) throw Error(ErrorKind::kState, "The loader is closed. Create a new DataLoader.");
}

Engine::Ticket Engine::submit(BatchRequest request) {
  check_usable();
  auto batch = std::make_shared<Batch>(std::move(request), plan_.sample_bytes());
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    ticket = next_ticket_++;
    pending_.push_back({ticket, batch});
    entries_.push_back({ticket, std::move(batch)});
  }
  work_.notify_all();
  return ticket;
}

std::shared_ptr<Batch> Engine::find(Ticket ticket) {
  for (const Entry& entry : entries_) {
    if (entry.ticket == ticket) return entry.batch;
  }
  throw Error(ErrorKind::kState,
              "No batch has ticket " + std::to_string(ticket) + "; it was collected or cancelled.");
}

void Engine::erase(Ticket ticket) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.ticket == ticket; });
  std::erase_if(pending_, [&](const Entry& entry) { return entry.ticket == ticket; });
}

bool Engine::wait(Ticket ticket, double seconds) {
  check_usable();
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Batch> batch = find(ticket);
  const auto limit = std::chrono::duration<double>(std::max(0.0, seconds));
  return done_.wait_for(lock, limit, [&] { return batch->complete() || closing_; }) &&
         batch->complete();
}

std::vector<SampleFault> Engine::collect(Ticket ticket) {
  check_usable();
  std::shared_ptr<Batch> batch;
  std::shared_ptr<void> owner;
  {
    const std::lock_guard lock(mutex_);
    batch = find(ticket);
    if (!batch->complete()) {
      throw Error(ErrorKind::kState, "Batch " + std::to_string(ticket) + " is not complete.");
    }
    erase(ticket);
    owner = batch->take_owner();
  }
  return batch->take_faults();
}

void Engine::cancel(Ticket ticket) {
  check_usable();
  std::shared_ptr<void> owner;  // destroyed after the lock is released
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Batch> batch = find(ticket);
  batch->abandon();
  done_.wait(lock, [&] { return batch->complete(); });
  erase(ticket);
  owner = batch->take_owner();
}

void Engine::close() {
  if (closed_ || ::getpid() != owner_) return;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    for (const Entry& entry : pending_) entry.batch->abandon();
    pending_.clear();
  }
  work_.notify_all();
  done_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  producers_.clear();
  closed_ = true;
  entries_.clear();
}

std::shared_ptr<Batch> Engine::next_batch(int thread) {
  std::unique_lock lock(mutex_);
  if (pending_.empty() && !closing_) {
    const uint64_t start = now_ns();
    work_.wait(lock, [&] { return !pending_.empty() || closing_; });
    stats_[thread].add_time(Stage::kIdle, now_ns() - start);
  }
  return closing_ ? nullptr : pending_.front().batch;
}

void Engine::run(int thread) {
  Producer& producer = *producers_[static_cast<size_t>(thread)];
  while (const std::shared_ptr<Batch> batch = next_batch(thread)) {
    for (;;) {
      const Batch::Range range = batch->claim(chunk_);
      if (range.first == range.last) break;
      for (uint32_t i = range.first; i < range.last; ++i) producer.fill(*batch, i);
      if (batch->finish(range.last - range.first)) {
        // The lock orders the notification after a waiter's check of complete().
        { const std::lock_guard lock(mutex_); }
        done_.notify_all();
      }
    }
    const std::lock_guard lock(mutex_);
    if (!pending_.empty() && pending_.front().batch == batch) pending_.pop_front();
  }
}

}  // namespace fastload
