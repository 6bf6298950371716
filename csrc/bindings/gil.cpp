#include "gil.h"

#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "base/error.h"
#include "base/exit_gate.h"
#include "register.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

constexpr int kLook = 1000;  // microseconds
constexpr int kLooks = 100;  // between atexit's last function and finalization

// Every Python has it, but the stable ABI only from 3.13 on, and before that it had another name.
bool is_finalizing() noexcept {
  using Function = int (*)();
  static const auto function = [] {
    void* found = ::dlsym(RTLD_DEFAULT, "Py_IsFinalizing");
    return reinterpret_cast<Function>(found != nullptr ? found
                                                       : ::dlsym(RTLD_DEFAULT, "_Py_IsFinalizing"));
  }();
  return function() != 0;
}

[[noreturn]] void wait_for_ever() noexcept {
  for (;;) ::pause();
}

// Returns where somebody may be waiting for this thread.
void wait_for_the_end() noexcept {
  for (int look = 0; !is_finalizing(); ++look) {
    if (look == kLooks) return;
    ::usleep(kLook);
  }
  wait_for_ever();
}

// Takes the GIL by `take`. CPython may begin to end this thread meanwhile: nothing says beforehand
// that finalization will not begin while it waits.
template <class Take>
void take_gil(Take take) noexcept {
  try {
    take();
  } catch (...) {  // pthread_exit() unwinds; whoever ends it here must not go on
    wait_for_ever();
  }
}

bool close_gate(double seconds) {
  const nb::gil_scoped_release release;
  return ExitGate::close(std::chrono::duration<double>(seconds));
}

}  // namespace

GilAcquire::GilAcquire(std::nothrow_t /*unused*/) noexcept {
  if (nb::is_alive() && ExitGate::enter()) take_gil([this] { gil_.emplace(); });
}

GilAcquire::GilAcquire(const char* what) : GilAcquire(std::nothrow) {
  if (gil_) return;
  throw Error(ErrorKind::kState, std::string(what) +
                                     " cannot run: the Python interpreter is exiting. End the "
                                     "iteration, or close() the loader, before the program ends.");
}

GilAcquire::~GilAcquire() {
  if (!gil_) return;
  gil_.reset();
  ExitGate::leave();
}

GilRelease::GilRelease() noexcept : state_(PyEval_SaveThread()) {}

GilRelease::~GilRelease() {
  const bool entered = ExitGate::enter();
  if (!entered) wait_for_the_end();
  take_gil([this] { PyEval_RestoreThread(state_); });
  if (entered) ExitGate::leave();
}

void register_gil(nb::module_& m) {
  m.def("close_gil_gate", &close_gate, nb::arg("seconds") = 5.0,
        "The core's threads run no Python any more. Waits until none does: False if one still "
        "does. For atexit, which calls it.");
  nb::module_::import_("atexit").attr("register")(m.attr("close_gil_gate"));
}

}  // namespace fastload::bindings
