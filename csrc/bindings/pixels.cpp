// Operations on pixels: their list, the spec that the engine takes, and one picture at a time.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/row_sink.h"
#include "register.h"
#include "transform/pixels/registry.h"
#include "transform/pixels/stage.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fastload::bindings {
namespace {

using Image = nb::ndarray<const uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;
using Array = nb::ndarray<nb::numpy, uint8_t>;
using UseTuple =
    std::tuple<std::string, double, std::vector<double>>;  // name, probability, numbers

void make_spec(PixelSpec* self, const std::vector<UseTuple>& uses) {
  PixelSpec spec;
  for (const auto& [name, probability, numbers] : uses) spec.add(name, probability, numbers);
  new (self) PixelSpec(std::move(spec));
}

nb::dict listed() {
  nb::dict all;
  for (const PixelOperation* operation : pixel_operations()) {
    nb::list parameters;
    for (const char* name : operation->parameters) parameters.append(name);
    all[operation->name] = nb::make_tuple(operation->number, nb::tuple(parameters));
  }
  return all;
}

Array operate(const Image& image, const PixelSpec& spec, uint64_t seed, uint64_t epoch,
              uint64_t sample, uint32_t draw) {
  const size_t height = image.shape(0);
  const size_t width = image.shape(1);
  auto out = std::make_unique<uint8_t[]>(height * width * 3 + RowSink::kSlack);
  {
    nb::gil_scoped_release release;
    const Picture picture{out.get(), static_cast<int>(width), static_cast<int>(height)};
    std::memcpy(picture.pixels, image.data(), picture.bytes());
    spec.apply({epoch_key(seed, epoch), sample, draw}, picture);
  }
  uint8_t* const data = out.release();
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
  return Array(data, {height, width, 3}, owner);
}

}  // namespace

void register_pixels(nb::module_& m) {
  m.attr("PIXEL_OPERATIONS") = listed();
  nb::class_<PixelSpec>(m, "PixelSpec", "Operations on pixels; see transform/pixels/stage.h.")
      .def("__init__", make_spec, "uses"_a = std::vector<UseTuple>{},
           "uses: (name, probability, numbers) each, the numbers as PIXEL_OPERATIONS has them.")
      .def("__len__", [](const PixelSpec& self) { return self.uses().size(); });
  m.def("operate", operate, "image"_a, "spec"_a, "seed"_a, "epoch"_a, "sample"_a, "draw"_a = 0,
        "An (H, W, 3) uint8 picture after the operations, drawn for this sample.");
}

}  // namespace fastload::bindings
