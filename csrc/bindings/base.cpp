// Errors, opening files, checksums, random numbers and SIMD level.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>

#include <fcntl.h>

#include <array>
#include <cerrno>

#include "base/cpu.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/philox.h"
#include "convert.h"
#include "gil.h"
#include "register.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

// One Python class per ErrorKind, in its order; set once by fastload._native, kept for ever.
constexpr size_t kKinds = static_cast<size_t>(ErrorKind::kMissing) + 1;
std::array<PyObject*, kKinds> error_classes{};

void translate(const std::exception_ptr& p, void*) {
  try {
    std::rethrow_exception(p);
  } catch (const Error& e) {
    PyObject* cls = error_classes[static_cast<size_t>(e.kind())];
    PyErr_SetString(cls != nullptr ? cls : PyExc_RuntimeError, e.what());
  }
}

// For open(), which calls it with a path and flags. O_NONBLOCK: a FIFO must not be waited for.
// Signals' handlers run only where the kernel was interrupted, and nothing is open.
int open_at_once(const nb::object& path, int flags) {
  PyObject* encoded = nullptr;
  if (PyUnicode_FSConverter(path.ptr(), &encoded) == 0) throw nb::python_error();
  const auto owner = nb::steal<nb::bytes>(encoded);
  while (true) {
    int descriptor = -1;
    int error = 0;
    {
      GilRelease release;
      descriptor = ::open(owner.c_str(), flags | O_NONBLOCK | O_CLOEXEC);
      error = errno;
    }
    if (descriptor >= 0) return descriptor;
    errno = error;
    if (error != EINTR) PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path.ptr());
    if (error != EINTR || PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

}  // namespace

void register_base(nb::module_& m) {
  nb::register_exception_translator(translate, nullptr);
  m.def(
      "set_error_classes",
      [](nb::list classes) {
        if (nb::len(classes) != kKinds) throw nb::value_error("one class per ErrorKind");
        for (size_t i = 0; i < kKinds; ++i)
          error_classes[i] = nb::object(classes[i]).release().ptr();
      },
      nb::arg("classes"), "The exception class for each ErrorKind, in its order.");
  m.def("open_at_once", open_at_once, nb::arg("path"), nb::arg("flags"),
        "An opener for open(): a descriptor, without waiting for a FIFO's writer. Raises OSError.");
  m.def(
      "crc32c",
      [](const BytesArg& data, uint32_t crc) {
        GilRelease release;
        return crc32c(as_bytes(data), crc);
      },
      nb::arg("data"), nb::arg("crc") = 0, "CRC-32C of a contiguous uint8 array.");
  m.def(
      "crc32c_table",
      [](const BytesArg& data, uint32_t crc) { return crc32c_table(as_bytes(data), crc); },
      nb::arg("data"), nb::arg("crc") = 0, "The same, one byte at a time (the reference).");
  m.def(
      "philox4x32",
      [](std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
        return philox4x32(c, {k[0], k[1]});
      },
      nb::arg("counter"), nb::arg("key"), "Four uint32 words of Philox4x32-10.");
  m.def(
      "sample_words",
      [](uint64_t seed, uint64_t epoch, uint64_t sample, uint32_t draw, uint32_t op,
         uint32_t block) {
        const SampleRng rng{epoch_key(seed, epoch), sample, draw};
        return rng.words(static_cast<DrawOp>(op), block);
      },
      nb::arg("seed"), nb::arg("epoch"), nb::arg("sample"), nb::arg("draw"), nb::arg("op"),
      nb::arg("block"), "The four random words of a sample for one operation; see base/philox.h.");
  nb::dict draws;
  for (const DrawName& draw : kPythonDraws) draws[draw.name] = static_cast<uint32_t>(draw.op);
  m.attr("DRAW_OPS") = draws;
  m.def(
      "simd_level", [] { return std::string(simd_level_name(simd_level())); },
      "The instruction set in use: scalar, neon, avx2 or avx512.");
  m.def(
      "set_simd_level", [](const std::string& name) { set_simd_level(name); }, nb::arg("name"),
      "Caps the instruction set (tests and benchmarks).");
}

}  // namespace fastload::bindings
