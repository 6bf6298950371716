#include "base/ticks.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "base/thread.h"

namespace fastload {
namespace {

int open_state(pid_t thread) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/syscall";
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

}  // namespace

Ticks::Ticks(std::chrono::duration<double> period, int signal, std::function<void()> mark)
    : period_(period),
      signal_(signal),
      mark_(std::move(mark)),
      process_(::getpid()),
      syscall_(open_state(process_)) {}

Ticks::~Ticks() { stop(); }

void Ticks::start() {
  thread_ = start_thread("fl-ticks", [this] { run(); });
}

bool Ticks::is_of_this_process() const { return ::getpid() == process_; }

void Ticks::stop() {
  if (!is_of_this_process()) {
    if (thread_.joinable()) thread_.detach();
    return;
  }
  is_over_ = true;
  if (thread_.joinable()) thread_.join();
  if (syscall_ >= 0) ::close(syscall_);
  syscall_ = -1;
}

std::map<long, int> Ticks::take() {
  std::map<long, int> seen;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    seen.swap(seen_);
  }
  is_marked_ = false;
  is_sent_ = false;
  return seen;
}

void Ticks::run() {
  using Clock = std::chrono::steady_clock;
  auto next = Clock::now();
  while (!is_over_) {
    next += std::chrono::duration_cast<Clock::duration>(period_);
    std::this_thread::sleep_until(next);
    const long now = state();
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      ++seen_[now];
    }
    if (now == kRunning) {
      // The main thread's id is the process's. Between the look and the signal it may begin a
      // system call, which is then restarted or ends with EINTR, as with any signal.
      if (!is_sent_.exchange(true)) ::syscall(SYS_tgkill, process_, process_, signal_);
    } else if (!is_marked_.exchange(true)) {
      mark_();
    }
  }
}

// The kernel writes "running", or a system call's number and its arguments; -1 if the thread waits
// outside of one.
long Ticks::state() const {
  char text[32];
  const ssize_t size = ::pread(syscall_, text, sizeof text - 1, 0);
  if (size <= 0) return kUnknown;
  text[size] = '\0';
  char* end = nullptr;
  const long number = std::strtol(text, &end, 10);
  if (end == text) return kRunning;
  return number < 0 ? kFault : number;
}

}  // namespace fastload
