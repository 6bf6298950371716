// Operations on pixels: their list, the spec that the engine takes, and one picture at a time.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "gil.h"
#include "register.h"
#include "transform/pixels/registry.h"
#include "transform/pixels/stage.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fastload::bindings {
namespace {

using Image = nb::ndarray<const uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;
using Array = nb::ndarray<nb::numpy, uint8_t>;

PixelNumber to_number(nb::handle given) {
  if (!nb::isinstance<nb::tuple>(given)) return nb::cast<double>(given);
  const auto [kind, values] = nb::cast<std::pair<std::string, std::vector<double>>>(given);
  return {kind, values};
}

// (name, probability, numbers, parts); no parts may be left out.
PixelNode to_node(nb::handle given) {
  const auto fields = nb::cast<nb::tuple>(given);
  PixelNode node{nb::cast<std::string>(fields[0]), nb::cast<double>(fields[1]), {}, {}};
  for (const nb::handle number : fields[2]) node.numbers.push_back(to_number(number));
  if (nb::len(fields) < 4) return node;
  for (const nb::handle part : fields[3]) node.parts.push_back(to_node(part));
  return node;
}

void make_spec(PixelSpec* self, const nb::sequence& uses, const PixelSpec* before) {
  std::vector<PixelNode> nodes;
  for (const nb::handle use : uses) nodes.push_back(to_node(use));
  new (self) PixelSpec(std::move(nodes), before == nullptr ? PixelSpec() : *before);
}

nb::list drawn(const PixelSpec& spec, uint64_t seed, uint64_t epoch, uint64_t sample, uint32_t draw,
               uint8_t view) {
  DrawnPixels found;
  spec.draw({epoch_key(seed, epoch), sample, draw, view}, found);
  nb::list steps;
  for (const DrawnPixels::Step& step : found.steps()) {
    const std::span<const double> numbers = found.numbers(step);
    const std::vector<double> values(numbers.begin(), numbers.end());
    steps.append(nb::make_tuple(step.operation->name, nb::tuple(nb::cast(values))));
  }
  return steps;
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

nb::tuple moving() {
  nb::list names;
  for (const PixelOperation* operation : pixel_operations()) {
    if (operation->motion != nullptr) names.append(operation->name);
  }
  return nb::tuple(names);
}

nb::tuple motion_of(const std::string& name, const std::vector<double>& numbers, int width,
                    int height, uint64_t seed, uint64_t epoch, uint64_t sample) {
  const PixelOperation& operation = pixel_operation(name);
  if (operation.motion == nullptr || numbers.size() != operation.parameters.size()) {
    throw Error(ErrorKind::kValue, name + " moves nothing, or takes other numbers.");
  }
  const SampleRng rng{epoch_key(seed, epoch), sample, 0};
  const Motion motion =
      operation.motion(numbers, PixelDraws(rng, operation.number, 0), width, height);
  return nb::make_tuple(nb::tuple(nb::cast(std::vector(motion.a.begin(), motion.a.end()))),
                        motion.perspective);
}

Array operate(const Image& image, const PixelSpec& spec, uint64_t seed, uint64_t epoch,
              uint64_t sample, uint32_t draw, uint8_t view, int repeat) {
  const size_t height = image.shape(0);
  const size_t width = image.shape(1);
  auto out = std::make_unique<uint8_t[]>(height * width * 3);
  {
    GilRelease release;
    Canvas canvas;
    DrawnPixels drawn;
    for (int i = 0; i < repeat; ++i) {
      canvas.begin(static_cast<int>(width), static_cast<int>(height));
      std::memcpy(canvas.picture().pixels, image.data(), canvas.picture().bytes());
      spec.draw({epoch_key(seed, epoch), sample, draw, view}, drawn);
      drawn.apply(canvas);
    }
    std::memcpy(out.get(), canvas.picture().pixels, canvas.picture().bytes());
  }
  uint8_t* const data = out.release();
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
  return Array(data, {height, width, 3}, owner);
}

}  // namespace

void register_pixels(nb::module_& m) {
  m.attr("PIXEL_OPERATIONS") = listed();
  m.attr("MOVING_OPERATIONS") = moving();
  nb::class_<PixelSpec>(m, "PixelSpec", "Operations on pixels; see transform/pixels/spec.h.")
      .def("__init__", make_spec, "uses"_a = nb::tuple(), "before"_a = nb::none(),
           "uses: (name, probability, numbers, parts) each. Of an operation: numbers as "
           "PIXEL_OPERATIONS has them, no parts. Of a group (all, choice, order): parts are uses, "
           "the numbers of a choice its weights. A number is a float, or (kind, values): drawn for "
           "each sample; see transform/pixels/number.h. before: a PixelSpec whose uses draw apart "
           "from these.")
      .def("__len__", &PixelSpec::size)
      .def("drawn", drawn, "seed"_a, "epoch"_a, "sample"_a, "draw"_a = 0, "view"_a = 0,
           "What happens to this sample: (name, numbers) of each operation, in order.");
  m.def("motion_of", motion_of, "name"_a, "numbers"_a, "width"_a, "height"_a, "seed"_a = 0,
        "epoch"_a = 0, "sample"_a = 0,
        "Where an operation, the first of its name, moves this sample's pixels: (eight numbers, "
        "whether it is a perspective); see transform/pixels/motion.h.");
  m.def("operate", operate, "image"_a, "spec"_a, "seed"_a, "epoch"_a, "sample"_a, "draw"_a = 0,
        "view"_a = 0, "repeat"_a = 1,
        "An (H, W, 3) uint8 picture after the operations, drawn for this sample; `repeat` times "
        "over (benchmarks).");
}

}  // namespace fastload::bindings
