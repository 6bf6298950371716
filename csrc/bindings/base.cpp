// Errors, opening files, checksums, random numbers and SIMD level.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

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

using Ids = nb::ndarray<const int64_t, nb::ndim<1>, nb::device::cpu>;
using Draws = nb::ndarray<const uint32_t, nb::ndim<1>, nb::device::cpu>;
using Words = nb::ndarray<nb::numpy, uint32_t, nb::ndim<3>>;
constexpr size_t kMostBlocks = 1 << 16;  // of one operation, see SampleRng
constexpr size_t kWithoutGil = 1 << 12;  // blocks that take longer than giving the GIL away

Words batch_words(uint64_t seed, uint64_t epoch, const Ids& ids, const std::optional<Draws>& draws,
                  uint8_t op, size_t blocks) {
  const size_t count = ids.shape(0);
  if (blocks > kMostBlocks) {
    throw nb::value_error(("blocks must be at most " + std::to_string(kMostBlocks) +
                           ". Found: " + std::to_string(blocks) + ".")
                              .c_str());
  }
  if (draws && draws->shape(0) != count) {
    throw nb::value_error(("draws must have one number for each of " + std::to_string(count) +
                           " ids. Found: " + std::to_string(draws->shape(0)) + ".")
                              .c_str());
  }
  auto words = std::make_unique_for_overwrite<uint32_t[]>(count * blocks * 4);
  {
    std::optional<GilRelease> release;
    if (count * blocks >= kWithoutGil) release.emplace();
    const PhiloxKey key = epoch_key(seed, epoch);
    uint32_t* out = words.get();
    for (size_t i = 0; i < count; ++i) {
      const SampleRng rng{key, static_cast<uint64_t>(ids(i)), draws ? (*draws)(i) : 0};
      for (size_t block = 0; block < blocks; ++block, out += 4) {
        const PhiloxWords four = rng.words(static_cast<DrawOp>(op), static_cast<uint32_t>(block));
        std::memcpy(out, four.data(), sizeof(four));
      }
    }
  }
  nb::capsule owner(words.get(), [](void* p) noexcept { delete[] static_cast<uint32_t*>(p); });
  uint32_t* const data = words.release();
  return Words(data, {count, blocks, 4}, owner);
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
  m.def("batch_words", batch_words, nb::arg("seed"), nb::arg("epoch"), nb::arg("ids").noconvert(),
        nb::arg("draws").noconvert().none(), nb::arg("op"), nb::arg("blocks"),
        "(n, blocks, 4) uint32: what sample_words gives for each of (n,) int64 ids and each block. "
        "draws: (n,) uint32; None: all 0. Raises ValueError, TypeError for other types.");
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
