// A Python callable as the core's FallbackDecode.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "base/error.h"
#include "convert.h"
#include "decode/decode.h"
#include "gil.h"

namespace fastload::bindings {

namespace fallback_detail {

using Picture = nanobind::ndarray<const uint8_t, nanobind::shape<-1, -1, 3>, nanobind::c_contig,
                                  nanobind::device::cpu>;

inline RgbImage copy_picture(nanobind::handle result) {
  Picture picture;
  if (!nanobind::try_cast<Picture>(result, picture, false)) {
    throw Error(ErrorKind::kDecode,
                "the fallback decoder must return a C-contiguous uint8 array of shape (height, "
                "width, 3), got " +
                    std::string(nanobind::type_name(result.type()).c_str()));
  }
  RgbImage image;
  image.height = static_cast<uint32_t>(picture.shape(0));
  image.width = static_cast<uint32_t>(picture.shape(1));
  image.pixels.resize(picture.size() + RowSink::kSlack);
  std::copy_n(picture.data(), picture.size(), image.pixels.data());
  return image;
}

// The type and text of an exception, without the traceback.
inline std::string describe(const nanobind::python_error& error) {
  const std::string type = nanobind::cast<std::string>(error.type().attr("__name__"));
  return type + ": " + nanobind::str(error.value()).c_str();
}

}  // namespace fallback_detail

// `callable` takes the record (bytes), where it is to be shown otherwise than stored also whether it
// is turned, and whether what is transparent lies on white; it returns a uint8 array of shape
// (height, width, 3). None gives no fallback. To be made with the GIL held; the result may be called, copied and destroyed
// on any thread, without the GIL. Exceptions of the callable become Error(kDecode) with their text.
inline FallbackDecode make_fallback(nanobind::object callable) {
  if (callable.is_none()) return nullptr;
  const std::shared_ptr<PyObject> owner = shared_owner(std::move(callable));
  return [owner](Bytes bytes, const Shown& shown) -> RgbImage {
    const GilAcquire gil("A decoder written in Python");
    using namespace nanobind::literals;
    try {
      const nanobind::bytes record(bytes.data(), bytes.size());
      const nanobind::object decode = nanobind::borrow(owner.get());
      const bool stored = shown == Shown{};
      return fallback_detail::copy_picture(
          stored ? decode(record)
                 : decode(record, "turned"_a = shown.turned, "on_white"_a = shown.on_white));
    } catch (const nanobind::python_error& error) {
      // KeyboardInterrupt and SystemExit are not about this picture.
      if (!error.matches(PyExc_Exception)) throw;
      if (error.matches(PyExc_MemoryError)) throw std::bad_alloc();
      throw Error(ErrorKind::kDecode, fallback_detail::describe(error));
    }
  };
}

}  // namespace fastload::bindings
