// The GIL for the core's threads, and for Python's that come back from the core, when the
// interpreter ends.
//
// CPython up to 3.13 ends a thread that asks for the GIL once finalization has begun with
// pthread_exit(), whose unwinding ends the whole process (std::terminate) at the first noexcept
// function: a destructor, or a thread's function. So there is a gate in front of the GIL. Python's
// atexit closes it before finalization begins, and waits until all who are inside have left. From
// then on the core's threads run no Python: what they would have released is leaked, and callbacks
// give an Error.
//
// A thread of Python's that comes back from the core then waits until finalization begins, and
// there for ever, as those of Python 3.14 do. If it does not begin soon, a function runs that
// atexit was given before ours, and may be waiting for this thread, which goes on. If finalization
// begins while it waits for the GIL, the unwinding ends here, and the thread waits for ever.
//
// In the binding files these stand for nanobind's gil_scoped_acquire and gil_scoped_release.
#pragma once

#include <nanobind/nanobind.h>

#include <new>
#include <optional>

namespace fastload::bindings {

// For a thread that may hold the GIL already, or not be Python's.
class GilAcquire {
 public:
  // Throws Error(kState) once the interpreter is exiting; `what` says who asks for it.
  explicit GilAcquire(const char* what);
  // Is false then, and the thread must not touch Python.
  explicit GilAcquire(std::nothrow_t /*unused*/) noexcept;
  ~GilAcquire();
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;

  explicit operator bool() const { return gil_.has_value(); }

 private:
  std::optional<nanobind::gil_scoped_acquire> gil_;
};

// For a thread that holds the GIL.
class GilRelease {
 public:
  GilRelease() noexcept;
  ~GilRelease();
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace fastload::bindings
