// Arguments and owners shared by the binding files.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <memory>
#include <new>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/pixel_format.h"
#include "decode/decode.h"
#include "gil.h"

namespace fastload::bindings {

// A contiguous one-dimensional uint8 array (np.frombuffer(data, np.uint8)), borrowed for the call.
using BytesArg =
    nanobind::ndarray<const uint8_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

// (channels, bits, ids), as PixelFormat.
using FormatArg = std::tuple<int, int, bool>;

inline PixelFormat to_format(const FormatArg& format) {
  return {std::get<0>(format), std::get<1>(format), std::get<2>(format)};
}

// (turned, on_white), as Shown.
using ShownArg = std::tuple<bool, bool>;

inline Shown to_shown(const ShownArg& shown) { return {std::get<0>(shown), std::get<1>(shown)}; }

inline Bytes as_bytes(const BytesArg& array) { return {array.data(), array.size()}; }

// (width, height, channels, bits) of raw pixels.
using RawArg = std::optional<std::tuple<uint32_t, uint32_t, int, int>>;

inline ImageInfo open_picture(Decoder& decoder, const BytesArg& data, const FormatArg& format,
                              const RawArg& raw, const ShownArg& shown = {}) {
  if (!raw) return decoder.open(as_bytes(data), to_format(format), to_shown(shown));
  const auto [width, height, channels, bits] = *raw;
  return decoder.open_raw(as_bytes(data), width, height, {channels, bits, false},
                          to_format(format));
}

// A reference that is released on whichever thread drops the last copy; leaked when the interpreter
// is exiting. To be made with the GIL held.
inline std::shared_ptr<PyObject> shared_owner(nanobind::object object) {
  return {object.release().ptr(), [](PyObject* owned) {
            if (const GilAcquire gil(std::nothrow); gil) Py_DECREF(owned);
          }};
}

// As an array of NumPy's that owns them.
template <typename T>
inline nanobind::object array(std::vector<T> values) {
  auto* const kept = new std::vector<T>(std::move(values));
  nanobind::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nanobind::cast(nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>(
      kept->data(), {kept->size()}, owner));
}

}  // namespace fastload::bindings
