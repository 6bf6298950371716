// A clock for a sampling profiler, which has Python call a signal's handler in the main thread
// between two bytecodes.
//
// A profiler's thread in Python would have to ask for the GIL, and gets it where the program gives
// it up: at reads and waits. It would find Python code at work far too seldom. The clock's thread
// needs no GIL. A main thread that runs gets a real signal: up to Python 3.12 nothing else makes it
// look before it gives up the GIL by itself (neither PyErr_SetInterruptEx() nor Py_AddPendingCall()
// does, from another thread). One that waits in a system call is not interrupted: it takes the GIL
// again afterwards, and then looks.
#include "base/ticks.h"

#include <chrono>

#include "gil.h"
#include "register.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

class PythonTicks : public Ticks {
 public:
  PythonTicks(int signal, double seconds)
      : Ticks(std::chrono::duration<double>(seconds), signal,
              [signal] { PyErr_SetInterruptEx(signal); }) {}
};

nb::dict taken(PythonTicks& self) {
  nb::dict states;
  for (const auto& [state, count] : self.take()) states[nb::int_(state)] = nb::int_(count);
  return states;
}

void stop(PythonTicks& self) {
  const GilRelease release;
  self.stop();
}

}  // namespace

void register_ticks(nb::module_& m) {
  nb::class_<PythonTicks>(
      m, "Ticks",
      "Has Python call the handler of `signal` in the main thread about once every `seconds`, from "
      "start() until stop(). The handler calls take(): ticks since the last call by what the thread did "
      "then, the number of the system call in which it waited, -1 if it ran, -2 if not known, -3 "
      "if it waited for a page of memory.")
      .def(nb::init<int, double>(), nb::arg("signal"), nb::arg("seconds"))
      .def("start", &PythonTicks::start)
      .def("take", &taken)
      .def("stop", &stop);
}

}  // namespace fastload::bindings
