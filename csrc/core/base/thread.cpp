#include "base/thread.h"

#include <cxxabi.h>
#include <pthread.h>

#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace fastload {
namespace {

class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

// Several times what the thread-local data of a thread need: the core's (some 5 KB) and the C++
// library's for exceptions.
constexpr size_t kNeeds = 64 << 10;

// Volatile: compilers leave out what nothing reads.
thread_local void* volatile exceptions = nullptr;

// The dynamic loader takes a library's thread-local data when a thread first touches them, and
// ends the process (exit status 127) if it finds no memory. False if there seems to be too little.
bool take_thread_local_data() {
  void* volatile probe = std::malloc(kNeeds);
  if (probe == nullptr) return false;
  std::free(probe);
  exceptions = abi::__cxa_get_globals();  // the core's own data are one block with `exceptions`
  return true;
}

enum class State { kStarting, kReady, kNoMemory };

// What starter and thread share; the thread may be the last to let go of it.
struct Start {
  std::mutex mutex;
  std::condition_variable changed;
  State state = State::kStarting;
  std::function<void()> run;
};

void begin(const std::shared_ptr<Start>& start) {
  const bool has_memory = take_thread_local_data();
  const std::function<void()> run = std::move(start->run);
  {
    const std::lock_guard lock(start->mutex);
    start->state = has_memory ? State::kReady : State::kNoMemory;
  }
  start->changed.notify_one();
  if (has_memory) run();
}

}  // namespace

std::thread start_thread(const char* name, std::function<void()> run) {
  const BlockedSignals blocked;
  const auto start = std::make_shared<Start>();
  start->run = std::move(run);
  std::thread thread([start] { begin(start); });
  {
    std::unique_lock lock(start->mutex);
    start->changed.wait(lock, [&] { return start->state != State::kStarting; });
  }
  if (start->state == State::kNoMemory) {
    thread.join();
    throw std::bad_alloc();
  }
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace fastload
