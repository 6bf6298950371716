// A clock for a sampling profiler: it calls a function in the main thread between two bytecodes,
// as a signal's handler would be called, but no system call of the program is interrupted.
//
// A profiler's thread in Python would have to ask for the GIL, and gets it where the program gives
// it up: at reads and waits. It would find Python code at work far too seldom. This thread needs no
// GIL. At each tick it notes what the main thread does (the kernel knows whether it runs, or which
// system call it waits in), and Py_AddPendingCall has the function called at the next bytecode.
// That is in the line that was at work at the tick, also if it was inside a library.
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "gil.h"
#include "register.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

constexpr long kRunning = -1;  // in place of a system call's number
constexpr long kUnknown = -2;
constexpr long kFault = -3;  // it waits for a page of memory, from a mapped file or from swap

class Ticks {
 public:
  Ticks(nb::callable function, double seconds)
      : function_(std::move(function)), period_(seconds), process_(::getpid()) {
    const std::string task = "/proc/self/task/" + std::to_string(process_);
    syscall_ = ::open((task + "/syscall").c_str(), O_RDONLY | O_CLOEXEC);
    current_ = this;
    thread_ = std::thread([this] { run(); });
  }

  ~Ticks() { stop(); }

  Ticks(const Ticks&) = delete;
  Ticks& operator=(const Ticks&) = delete;

  void stop() {
    Ticks* self = this;
    current_.compare_exchange_strong(self, nullptr);
    if (::getpid() != process_) {  // a forked process has no such thread
      if (thread_.joinable()) thread_.detach();
      return;
    }
    is_over_ = true;
    if (thread_.joinable()) {
      const GilRelease release;
      thread_.join();
    }
    if (syscall_ >= 0) ::close(syscall_);
    syscall_ = -1;
  }

 private:
  void run() {
    ::pthread_setname_np(::pthread_self(), "fl-ticks");
    auto next = std::chrono::steady_clock::now();
    while (!is_over_) {
      next += std::chrono::duration_cast<std::chrono::steady_clock::duration>(period_);
      std::this_thread::sleep_until(next);
      {
        const std::lock_guard<std::mutex> guard(mutex_);
        ++seen_[state()];
      }
      if (!is_asked_.exchange(true) && Py_AddPendingCall(&Ticks::call, nullptr) != 0)
        is_asked_ = false;  // its queue is full; the next tick asks again
    }
  }

  // The number of the system call in which the main thread waits, or kRunning.
  long state() const {
    char text[32];
    const ssize_t size = ::pread(syscall_, text, sizeof text - 1, 0);
    if (size <= 0) return kUnknown;
    text[size] = '\0';
    char* end = nullptr;
    const long number = std::strtol(text, &end, 10);
    if (end == text) return kRunning;  // the word "running"
    return number < 0 ? kFault : number;
  }

  // Runs in the main thread, which holds the GIL. In a forked process, which inherits pending
  // calls, the clock is not this process's.
  static int call(void* /*unused*/) {
    Ticks* const self = current_;
    if (self == nullptr || self->process_ != ::getpid()) return 0;
    self->look();
    return 0;
  }

  void look() {
    std::map<long, int> seen;
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      seen.swap(seen_);
    }
    is_asked_ = false;
    PyObject *kind = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&kind, &value, &trace);  // of the code that is interrupted
    try {
      nb::dict states;
      for (const auto& [number, count] : seen) states[nb::int_(number)] = nb::int_(count);
      function_(states);
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("the doctor's clock");
    }
    PyErr_Restore(kind, value, trace);
  }

  static std::atomic<Ticks*> current_;

  nb::callable function_;
  std::chrono::duration<double> period_;
  pid_t process_;
  int syscall_ = -1;
  std::mutex mutex_;
  std::map<long, int> seen_;
  std::atomic<bool> is_asked_{false};
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

std::atomic<Ticks*> Ticks::current_{nullptr};

}  // namespace

void register_ticks(nb::module_& m) {
  nb::class_<Ticks>(m, "Ticks",
                    "Calls function(states) in the main thread about once every `seconds`, until "
                    "stop(). states: ticks since the last call by what the thread did then, the "
                    "number of the system call in which it waited, -1 if it ran, -2 if not known, "
                    "-3 if it waited for a page of memory.")
      .def(nb::init<nb::callable, double>(), nb::arg("function"), nb::arg("seconds"))
      .def("stop", &Ticks::stop);
}

}  // namespace fastload::bindings
