// A clock that looks at another thread: at each tick, does it run, or in which system call does it
// wait? For a sampling profiler.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace fastload {

class Ticks {
 public:
  // In place of a system call's number.
  static constexpr long kRunning = -1;
  static constexpr long kUnknown = -2;
  static constexpr long kFault = -3;  // it waits for a page of memory, of a mapped file or of swap

  // Once started, looks at the process's main thread every `period`, and then sees to it that
  // `signal`'s handler runs in that thread, unless it has since the last take(): by the signal
  // itself if the thread runs, and by `mark`, called in the clock's thread, if it waits, since no
  // system call is to be interrupted.
  Ticks(std::chrono::duration<double> period, int signal, std::function<void()> mark);
  ~Ticks();
  Ticks(const Ticks&) = delete;
  Ticks& operator=(const Ticks&) = delete;

  // Throws what start_thread() does.
  void start();
  // Ends the thread; idempotent. In a forked process, which has no such thread, it forgets it.
  void stop();
  [[nodiscard]] bool is_of_this_process() const;
  // The number of ticks by what the thread did, since the last call.
  std::map<long, int> take();

 private:
  void run();
  [[nodiscard]] long state() const;

  std::chrono::duration<double> period_;
  int signal_;
  std::function<void()> mark_;
  pid_t process_;
  int syscall_;  // the kernel's file about the main thread; -1: there is none
  std::mutex mutex_;
  std::map<long, int> seen_;  // guarded by mutex_
  std::atomic<bool> is_marked_{false};
  std::atomic<bool> is_sent_{false};
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

}  // namespace fastload
