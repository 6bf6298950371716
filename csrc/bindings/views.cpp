// Views of pictures, and points under them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "convert.h"
#include "register.h"
#include "sample/areas.h"
#include "sample/points.h"
#include "transform/geometry/registry.h"
#include "transform/view_at_size.h"
#include "views.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fastload::bindings {

// ---- Views, and the geometry that they are drawn from

namespace {

using StepTuple = std::tuple<std::string, std::vector<double>>;  // name, numbers
using Boxes = std::vector<std::array<double, 4>>;

void make_geometry(GeometrySpec* self, const std::vector<StepTuple>& steps,
                   const std::string& filter, std::vector<int> fill, std::optional<int> mask_fill) {
  GeometrySpec spec;
  for (const auto& [name, numbers] : steps) spec.add(name, numbers);
  spec.filter = by_name<Filter>("filter", kFilters, filter);
  spec.fill = std::move(fill);
  spec.mask_fill = mask_fill;
  new (self) GeometrySpec(std::move(spec));
}

nb::dict geometry_list() {
  nb::dict all;
  for (const GeometryOperation* operation : geometry_operations()) {
    nb::list parameters;
    for (const char* name : operation->parameters) parameters.append(name);
    all[operation->name] = nb::tuple(parameters);
  }
  return all;
}

void register_geometry(nb::module_& m) {
  m.attr("GEOMETRY_OPERATIONS") = geometry_list();
  nb::class_<GeometrySpec>(m, "GeometrySpec",
                           "Crop, resize, window and flip; see transform/view.h.")
      .def(
          "__init__", make_geometry, "steps"_a = std::vector<StepTuple>{}, "filter"_a = "bilinear",
          "fill"_a = std::vector<int>{}, "mask_fill"_a = nb::none(),
          "steps: (name, numbers) each, the numbers as GEOMETRY_OPERATIONS has them. fill: what is "
          "where nothing of the picture is, for each channel or one for all, mask_fill: likewise "
          "in masks; None: the fields' own.")
      .def_prop_ro("needs_boxes", &GeometrySpec::needs_boxes)
      .def_prop_ro("filter",
                   [](const GeometrySpec& s) { return kFilters[static_cast<size_t>(s.filter)]; });
}

// As Python saw views before they had more than four parts.
ViewTuple to_places(const View& v) {
  return {to_tuple(v.crop), {v.resized_width, v.resized_height}, to_tuple(v.window), v.flip};
}

void make_view(View* self, const ViewTuple& places, const std::optional<RectTuple>& seen,
               const std::optional<RectTuple>& shown,
               const std::optional<std::array<double, 4>>& area,
               const std::optional<RectTuple>& centres, uint8_t quarter) {
  if (quarter > 3) {
    throw Error(ErrorKind::kValue, "quarter must be one of 0 to 3 quarter turns. Found: " +
                                       std::to_string(quarter) + ".");
  }
  View view = to_view(places);
  if (seen) view.seen = to_rect(*seen);
  if (shown) view.shown = to_rect(*shown);
  if (area) view.area = *area;
  if (centres) view.centres = to_rect(*centres);
  view.quarter = quarter;
  new (self) View(view);
}

nb::object rect_or_none(const Rect& rect) {
  return rect == View::kAll ? nb::none() : nb::cast(to_tuple(rect));
}

bool is_equal(const View& view, nb::handle other) {
  if (nb::isinstance<View>(other)) return view == nb::cast<const View&>(other);
  return nb::cast(to_places(view)).equal(other);
}

void register_view(nb::module_& m) {
  nb::class_<View>(m, "View",
                   "(crop, (resized width, height), window, flip) and more; rectangles are (x, y, "
                   "width, height). See transform/view.h.")
      .def("__init__", make_view, "places"_a, "seen"_a = nb::none(), "shown"_a = nb::none(),
           "area"_a = nb::none(), "centres"_a = nb::none(), "quarter"_a = 0)
      .def("__len__", [](const View&) { return 4; })
      .def("__getitem__",
           [](const View& v, nb::handle i) -> nb::object { return nb::cast(to_places(v))[i]; })
      .def("__iter__", [](const View& v) { return nb::iter(nb::cast(to_places(v))); })
      .def("__eq__", is_equal, "other"_a.none())
      .def("__hash__", [](const View& v) { return nb::hash(nb::cast(to_places(v))); })
      .def("__repr__", [](const View& v) { return nb::repr(nb::cast(to_places(v))); })
      .def_prop_ro("crop", [](const View& v) { return to_tuple(v.crop); })
      .def_prop_ro("resized",
                   [](const View& v) { return std::tuple(v.resized_width, v.resized_height); })
      .def_prop_ro("window", [](const View& v) { return to_tuple(v.window); })
      .def_ro("flip", &View::flip)
      .def_prop_ro("filter", [](const View& v) { return kFilters[static_cast<size_t>(v.filter)]; })
      .def_prop_ro(
          "seen", [](const View& v) { return rect_or_none(v.seen); },
          "What of the picture may be shown; None: all.")
      .def_prop_ro(
          "shown", [](const View& v) { return rect_or_none(v.shown); },
          "What of the resized picture may be shown; None: all.")
      .def_ro("area", &View::area, "Left, top, right, bottom that boxes are clipped to.")
      .def_ro("centred", &View::centred,
              "What boxes are clipped to before their centres are looked at.")
      .def_prop_ro(
          "centres",
          [](const View& v) { return v.centres ? nb::cast(to_tuple(*v.centres)) : nb::none(); },
          "Where the centres of boxes are that stay; None: anywhere.")
      .def_ro("quarter", &View::quarter, "Quarter turns counter-clockwise.")
      .def_prop_ro(
          "made", [](const View& v) { return std::tuple(v.made().width, v.made().height); },
          "Width and height of what comes out.")
      .def(
          "keeps",
          [](const View& v, const std::array<double, 4>& box) {
            return centre_stays(v, {box[0], box[1], box[2], box[3]});
          },
          "box"_a, "Whether a box, corners in pixels of the picture, stays for its centre.");
  nb::implicitly_convertible<ViewTuple, View>();
}

View drawn(const GeometrySpec& spec, int width, int height, uint64_t seed, uint64_t epoch,
           uint64_t sample, uint32_t draw, uint8_t view, const Boxes& boxes) {
  std::vector<BoxXyxy> corners;
  for (const auto& [left, top, right, bottom] : boxes) {
    corners.push_back({left, top, right, bottom});
  }
  return draw_view(spec, {width, height, corners}, {epoch_key(seed, epoch), sample, draw, view});
}

}  // namespace

void register_views(nb::module_& m) {
  register_geometry(m);
  register_view(m);
  m.def("draw_view", drawn, "spec"_a, "width"_a, "height"_a, "seed"_a, "epoch"_a, "sample"_a,
        "draw"_a = 0, "view"_a = 0, "boxes"_a = Boxes{},
        "A sample's view; boxes: corners in pixels of the picture, where the spec needs them.");
  m.def(
      "source_rect",
      [](const View& view, const std::string& filter) {
        return to_tuple(source_rect(view, by_name<Filter>("filter", kFilters, filter)));
      },
      "view"_a, "filter"_a = "bilinear", "The rectangle of the picture that a view needs.");
  m.def(
      "decoded_rect",
      [](const View& view, bool nearest) { return to_tuple(decoded_rect(view, nearest)); },
      "view"_a, "nearest"_a = false, "What is decoded of the picture for a view.");
}

// ---- Points under a view, for Python code that has cut a picture itself

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
