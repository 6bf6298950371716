// Points under a view, for Python code that has cut a picture itself.
#include "sample/points.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <string>

#include "convert.h"
#include "register.h"
#include "views.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

// Bytes under the view, in memory of their own.
nb::object move_points(const ViewTuple& view, uint32_t width, uint32_t height,
                       const std::string& format, bool relative, const BytesArg& values) {
  const PointMap map(to_view(view), width, height, width, height);
  auto moved = std::make_unique<uint8_t[]>(values.size());
  std::copy_n(values.data(), values.size(), moved.get());
  map.move({moved.get(), values.size()}, by_name<PointFormat>("format", kPointFormats, format),
           relative);
  uint8_t* const data = moved.release();
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(data, {values.size()}, owner));
}

}  // namespace

void register_points(nb::module_& m) {
  m.def("view_points", &move_points, nb::arg("view"), nb::arg("width"), nb::arg("height"),
        nb::arg("format"), nb::arg("relative"), nb::arg("values"),
        "The bytes of a value of points under a view of a width x height picture. format: xyxy, "
        "xywh, cxcywh, xy, xyv (float32 rows) or polygons. values, and the result: (bytes,) uint8.");
}

}  // namespace fastload::bindings
