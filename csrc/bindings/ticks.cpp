// A clock for a sampling profiler: it calls a function in the main thread between two bytecodes,
// as a signal's handler would be called, but no system call of the program is interrupted.
//
// A profiler's thread in Python would have to ask for the GIL, and gets it where the program gives
// it up: at reads and waits. It would find Python code at work far too seldom. The clock's thread
// needs no GIL: Py_AddPendingCall has the function called at the next bytecode, which is in the
// line that was at work at the tick, also if it was inside a library.
#include "base/ticks.h"

#include <atomic>
#include <chrono>
#include <optional>

#include "gil.h"
#include "register.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

class PythonTicks {
 public:
  PythonTicks(nb::callable function, double seconds) : function_(std::move(function)) {
    current_ = this;
    ticks_.emplace(std::chrono::duration<double>(seconds),
                   [] { return Py_AddPendingCall(&PythonTicks::call, nullptr) == 0; });
  }
  ~PythonTicks() { stop(); }
  PythonTicks(const PythonTicks&) = delete;
  PythonTicks& operator=(const PythonTicks&) = delete;

  void stop() {
    PythonTicks* self = this;
    current_.compare_exchange_strong(self, nullptr);
    if (!ticks_) return;
    const GilRelease release;
    ticks_->stop();
  }

 private:
  // Runs in the main thread, which holds the GIL. A forked process inherits pending calls, but not
  // the clock.
  static int call(void* /*unused*/) {
    PythonTicks* const self = current_;
    if (self != nullptr && self->ticks_->is_of_this_process()) self->look();
    return 0;
  }

  void look() {
    PyObject *kind = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&kind, &value, &trace);  // of the code that is interrupted
    try {
      nb::dict states;
      for (const auto& [state, count] : ticks_->take()) states[nb::int_(state)] = nb::int_(count);
      function_(states);
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("the doctor's clock");
    }
    PyErr_Restore(kind, value, trace);
  }

  static std::atomic<PythonTicks*> current_;

  nb::callable function_;
  std::optional<Ticks> ticks_;
};

std::atomic<PythonTicks*> PythonTicks::current_{nullptr};

}  // namespace

void register_ticks(nb::module_& m) {
  nb::class_<PythonTicks>(
      m, "Ticks",
      "Calls function(states) in the main thread about once every `seconds`, until stop(). states: "
      "ticks since the last call by what the thread did then, the number of the system call in "
      "which it waited, -1 if it ran, -2 if not known, -3 if it waited for a page of memory.")
      .def(nb::init<nb::callable, double>(), nb::arg("function"), nb::arg("seconds"))
      .def("stop", &PythonTicks::stop);
}

}  // namespace fastload::bindings
