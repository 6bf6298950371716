// Objects of a sample outside of batches: their masks, and values of some of them.
#include "sample/objects.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "convert.h"
#include "register.h"
#include "sample/masks.h"
#include "transform/view_at_size.h"
#include "views.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

using Numbers = std::vector<uint32_t>;

// The masks back to back.
nb::object draw_masks(const View& view, uint32_t width, uint32_t height, const std::string& name,
                      const BytesArg& values, const Numbers& objects,
                      const std::vector<MotionTuple>& cut, const std::vector<MotionTuple>& source) {
  const Motions motions{to_motions(source), to_motions(cut)};
  const auto view_at = [&](int w, int h) {
    return view_at_size(view, width, height, static_cast<uint32_t>(w), static_cast<uint32_t>(h));
  };
  const size_t bytes = static_cast<size_t>(view.made().height) *
                       static_cast<size_t>(view.made().width) * objects.size();
  std::vector<uint8_t> masks(bytes);
  MaskDrawer().draw(
      {values.data(), values.size()}, by_name<PointFormat>("format", kPointFormats, name), objects,
      {height,
       width,
       lines_of(view_at),
       &motions,
       {static_cast<int>(width), static_cast<int>(height)}},
      {masks.data(), static_cast<uint32_t>(objects.size()), view.made().height, view.made().width});
  return array(std::move(masks));
}

nb::object objects_of(const std::string& name, const BytesArg& values, const Numbers& objects) {
  const auto format = by_name<PointFormat>("format", kPointFormats, name);
  return array(Shapes({values.data(), values.size()}, format).of(objects));
}

// The rows that stay, and their boxes (rows * 4,) float32.
nb::tuple keep(const ObjectsPlan& plan, const View& view, uint32_t width, uint32_t height,
               const BytesArg& boxes, const BytesArg& without, const std::vector<MotionTuple>& cut,
               const std::vector<MotionTuple>& source) {
  const Motions motions{to_motions(source), to_motions(cut)};
  Kept kept;
  keep_objects({boxes.data(), boxes.size()}, {without.data(), without.size()}, plan,
               {&view, width, height, width, height, &motions}, kept);
  return nb::make_tuple(array(std::move(kept.rows)), array(std::move(kept.boxes)));
}

void make_plan(ObjectsPlan* self, uint32_t part, const std::string& format, bool relative,
               bool clip, bool clamp, bool drop, bool inside, double min_size, double min_area,
               std::optional<uint32_t> without) {
  const PointFormat form = by_name<PointFormat>("format", kPointFormats, format);
  new (self)
      ObjectsPlan{part, form, relative, clip, clamp, drop, inside, min_size, min_area, without};
}

}  // namespace

void register_objects(nb::module_& m) {
  nb::class_<ObjectsPlan>(m, "ObjectsPlan",
                          "What a view does to objects; see sample/objects_plan.h.")
      .def("__init__", &make_plan, nb::arg("part"), nb::kw_only(), nb::arg("format"),
           nb::arg("relative") = false, nb::arg("clip") = false, nb::arg("clamp") = false,
           nb::arg("drop") = false, nb::arg("inside") = false, nb::arg("min_size") = 1.0,
           nb::arg("min_area") = 1.0, nb::arg("without").none() = nb::none(),
           "part: the column of boxes, in that format. clip: by crops, pads and motions. clamp: "
           "where the picture ends. drop: those that are then too small, with inside those that "
           "reach over its border. without: a column of bools: objects that have it are dropped, "
           "too.");
  m.def(
      "keep_objects", &keep, nb::arg("plan"), nb::arg("view"), nb::arg("width"), nb::arg("height"),
      nb::arg("boxes"), nb::arg("without"), nb::arg("motions") = std::vector<MotionTuple>{},
      nb::arg("source") = std::vector<MotionTuple>{},
      "Which rows of a value of boxes stay, (n,) uint32, and their boxes, (4 n,) float32, under a "
      "view of a width x height picture. boxes: the value (bytes,) uint8; without: a byte a row, "
      "or none. motions, source: as view_points().");
  m.def("draw_masks", &draw_masks, nb::arg("view"), nb::arg("width"), nb::arg("height"),
        nb::arg("format"), nb::arg("values"), nb::arg("objects"),
        nb::arg("motions") = std::vector<MotionTuple>{},
        nb::arg("source") = std::vector<MotionTuple>{},
        "Masks (bytes,) uint8, 0 or 1, back to back, of these objects of a value (polygons, rle or "
        "mixed) under a view of a width x height picture. motions, source: as view_points().");
  m.def("objects_of", &objects_of, nb::arg("format"), nb::arg("values"), nb::arg("objects"),
        "The bytes of a value of polygons, rle or mixed that has these of its objects alone.");
}

}  // namespace fastload::bindings
