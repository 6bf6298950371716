// Points under a view, for Python code that has cut a picture itself.
#include "sample/points.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convert.h"
#include "register.h"
#include "sample/areas.h"
#include "transform/view_at_size.h"
#include "views.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

// Bytes under the view, in memory of their own.
nb::object move_points(const View& view, uint32_t width, uint32_t height, const std::string& name,
                       bool relative, const BytesArg& values, const std::vector<MotionTuple>& cut,
                       const std::vector<MotionTuple>& source) {
  const auto format = by_name<PointFormat>("format", kPointFormats, name);
  const Motions motions{to_motions(source), to_motions(cut)};
  std::vector<uint8_t> moved(values.data(), values.data() + values.size());
  const PointMap map(view, width, height, width, height, motions);
  const std::pair<int, int> size{static_cast<int>(width), static_cast<int>(height)};
  const auto view_at = [&](int w, int h) {
    return view_at_size(view, width, height, static_cast<uint32_t>(w), static_cast<uint32_t>(h));
  };
  if (format == PointFormat::kAreas) {
    moved = move_areas(moved, view_at, motions, size);
  } else if (format == PointFormat::kMixed) {
    moved = move_mixed(moved, map, view_at, motions, size);
  } else {
    map.move(moved, format, relative);
  }
  return array(std::move(moved));
}

}  // namespace

void register_points(nb::module_& m) {
  m.def("view_points", &move_points, nb::arg("view"), nb::arg("width"), nb::arg("height"),
        nb::arg("format"), nb::arg("relative"), nb::arg("values"),
        nb::arg("motions") = std::vector<MotionTuple>{},
        nb::arg("source") = std::vector<MotionTuple>{},
        "The bytes of a value of points under a view of a width x height picture. format: xyxy, "
        "xywh, cxcywh, xy, xyv (float32 rows), polygons, rle or mixed. values, and the result: "
        "(bytes,) "
        "uint8. motions: what moves the view's pixels, source: what moves the picture's before, as "
        "motion_of() has them.");
}

}  // namespace fastload::bindings
