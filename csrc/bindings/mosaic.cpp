// Mosaics: where pictures lie, for tests and for who looks at a plan.
#include "mosaic.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <utility>
#include <vector>

#include "register.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

nb::tuple rect(const Rect& rect) { return nb::make_tuple(rect.x, rect.y, rect.width, rect.height); }

nb::dict compose_in_python(const MosaicArg& mosaic, const std::vector<std::pair<int, int>>& sizes,
                           uint64_t seed, uint64_t epoch, uint64_t sample, uint32_t draw,
                           uint8_t view) {
  std::vector<PictureSide> sides;
  for (const auto& [width, height] : sizes) sides.push_back({width, height});
  const SampleRng rng{epoch_key(seed, epoch), sample, draw, view};
  const Composition made = compose(to_mosaic(mosaic), sides, rng);
  nb::list pictures;
  for (const PlacedPicture& one : made.pictures) {
    pictures.append(nb::make_tuple(one.x, one.y, one.width, one.height, rect(one.shown)));
  }
  nb::dict result;
  result["canvas"] = nb::make_tuple(made.canvas_width, made.canvas_height);
  result["pictures"] = pictures;
  result["visible"] = rect(made.visible);
  result["of_canvas"] = made.of_canvas.a;
  result["motion"] = made.motion.a;
  result["gain"] = made.gain;
  return result;
}

}  // namespace

void register_mosaic(nb::module_& m) {
  m.def("compose", &compose_in_python, nb::arg("mosaic"), nb::arg("sizes"), nb::arg("seed"),
        nb::arg("epoch"), nb::arg("sample"), nb::arg("draw") = 0, nb::arg("view") = 0,
        "Where pictures of these (width, height) lie in a sample's mosaic; see "
        "csrc/core/transform/mosaic.h. mosaic: (size, tiles, (degrees, translate, scale, shear, "
        "perspective), fill, alpha).");
  m.def(
      "mixup_weight",
      [](double alpha, uint64_t seed, uint64_t epoch, uint64_t sample, uint32_t draw) {
        return mixup_weight(alpha, {epoch_key(seed, epoch), sample, draw});
      },
      nb::arg("alpha"), nb::arg("seed"), nb::arg("epoch"), nb::arg("sample"), nb::arg("draw") = 0,
      "The weight of the first of two samples that are mixed.");
}

}  // namespace fastload::bindings
