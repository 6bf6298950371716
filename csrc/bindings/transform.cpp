// Transforms: what is done to a picture's pixels, for plans and for tests.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "convert.h"
#include "decode/decode.h"
#include "gil.h"
#include "mosaic.h"
#include "register.h"
#include "transform/cut.h"
#include "transform/pixels/registry.h"
#include "transform/pixels/stage.h"
#include "transform/resample.h"
#include "transform/store.h"
#include "transform/view.h"
#include "views.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fastload::bindings {

// ---- Resize and store for one picture, and the specs that the prefetch engine takes

namespace {

using Image = nb::ndarray<const uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;
using Array = nb::ndarray<nb::numpy, uint8_t>;

Array owned(std::unique_ptr<uint8_t[]> data, std::initializer_list<size_t> shape) {
  uint8_t* raw = data.release();
  nb::capsule owner(raw, [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
  return Array(raw, shape, owner);
}

// Borrowed pixels have no readable bytes behind them: a copy with RowSink::kSlack.
std::vector<uint8_t> with_slack(const Image& image, const Rect& rect) {
  const size_t row = static_cast<size_t>(rect.width) * 3;
  std::vector<uint8_t> pixels(row * rect.height + RowSink::kSlack);
  for (int y = 0; y < rect.height; ++y) {
    const size_t from = (static_cast<size_t>(rect.y + y) * image.shape(1) + rect.x) * 3;
    std::memcpy(pixels.data() + row * y, image.data() + from, row);
  }
  return pixels;
}

void check_inside(const View& view, const Image& image) {
  const auto& [x, y, w, h] = view.seen == View::kAll ? view.crop : view.seen;
  const auto width = static_cast<int64_t>(image.shape(1));
  const auto height = static_cast<int64_t>(image.shape(0));
  if (x >= 0 && y >= 0 && x + int64_t{w} <= width && y + int64_t{h} <= height) return;
  throw Error(ErrorKind::kValue, "The crop must be inside the picture, " + std::to_string(width) +
                                     " x " + std::to_string(height) + " pixels.");
}

void feed(RowSink& sink, const std::vector<uint8_t>& pixels, const Rect& rect, int chunk) {
  const size_t row = static_cast<size_t>(rect.width) * 3;
  for (int y = 0; y < rect.height; y += chunk) {
    sink.rows(pixels.data() + row * y, row, y, std::min(chunk, rect.height - y));
  }
}

Array run_view(const Image& image, View view, const std::string& filter_name, StoreSpec store,
               int chunk, int repeat, std::vector<int> fill) {
  view.filter = by_name<Filter>("filter", kFilters, filter_name);
  if (chunk < 1 || repeat < 1)
    throw Error(ErrorKind::kValue, "chunk and repeat must be at least 1.");
  check_inside(view, image);
  store.erase = {};  // erase() does it
  const auto [columns, lines] = view.made();
  const size_t width = static_cast<size_t>(std::max(columns, 0));
  const size_t height = static_cast<size_t>(std::max(lines, 0));
  const size_t size = dtype_size(store.dtype);
  CutSpec spec;
  spec.store = store;
  spec.colour = std::move(fill);
  const CutPlan plan(std::move(spec));
  std::unique_ptr<uint8_t[]> out;
  {
    GilRelease release;
    const Rect rect = decoded_rect(view, false);
    const std::vector<uint8_t> pixels = with_slack(image, rect);
    out = std::make_unique<uint8_t[]>(width * height * 3 * size);
    Resampler resampler;
    PixelStage stage;
    Cutter cutter(resampler, stage);
    for (int i = 0; i < repeat; ++i) {
      cutter.begin(view, plan, {out.get()});
      feed(cutter, pixels, rect, chunk);
      cutter.end();
    }
  }
  if (store.channels_last) return owned(std::move(out), {height, width, 3 * size});
  return owned(std::move(out), {3, height, width * size});
}

Array run_store(const Image& image, const StoreSpec& spec, int repeat) {
  const Rect rect{0, 0, static_cast<int>(image.shape(1)), static_cast<int>(image.shape(0))};
  const size_t size = dtype_size(spec.dtype);
  if (repeat < 1) throw Error(ErrorKind::kValue, "repeat must be at least 1.");
  std::unique_ptr<uint8_t[]> out;
  {
    GilRelease release;
    const std::vector<uint8_t> pixels = with_slack(image, rect);
    out = std::make_unique<uint8_t[]>(image.shape(0) * image.shape(1) * 3 * size);
    Store store(spec);
    for (int i = 0; i < repeat; ++i) {
      store.begin(out.get(), rect.width, rect.height);
      store.rows(pixels.data(), static_cast<size_t>(rect.width) * 3, 0, rect.height);
    }
  }
  if (spec.channels_last) return owned(std::move(out), {image.shape(0), image.shape(1), 3 * size});
  return owned(std::move(out), {3, image.shape(0), image.shape(1) * size});
}

// (probability, area, log of the ratio, count, fill, value), as EraseSpec's.
using EraseTuple = std::tuple<double, std::array<double, 2>, std::array<double, 2>,
                              std::array<int, 2>, std::string, std::array<float, 3>>;
constexpr std::array kFills{"value", "color", "noise"};

EraseSpec to_erase(const EraseTuple& given) {
  const auto& [probability, area, log_ratio, count, fill, value] = given;
  return {probability, area, log_ratio, count, by_name<EraseSpec::Fill>("fill", kFills, fill),
          value};
}

void make_store(StoreSpec* self, const std::string& dtype, bool channels_last, bool scale,
                bool normalize, const std::vector<double>& mean, const std::vector<double>& std,
                const std::optional<EraseTuple>& erased) {
  StoreSpec spec;
  spec.dtype = by_name<DType>("dtype", kDTypes, dtype);
  spec.channels_last = channels_last;
  spec.scale = scale;
  spec.normalize = normalize;
  spec.mean = mean;
  spec.std = std;
  if (erased) spec.erase = to_erase(*erased);
  channel_scales(spec, {static_cast<int>(mean.size()), 8, false});  // throws what it finds wrong
  new (self) StoreSpec(spec);
}

void run_erase(nb::ndarray<uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu> picture,
               const StoreSpec& spec, uint64_t seed, uint64_t epoch, uint64_t sample, uint32_t draw,
               uint8_t view) {
  const auto height = static_cast<int>(picture.shape(0));
  const auto width = static_cast<int>(picture.shape(1));
  if (!spec.channels_last || picture.shape(2) != 3 * dtype_size(spec.dtype)) {
    throw Error(ErrorKind::kValue, "erase() takes (h, w, 3 * itemsize) bytes, channels last.");
  }
  erase(spec, {epoch_key(seed, epoch), sample, draw, view}, {picture.data()}, width, height);
}

void register_store(nb::module_& m) {
  nb::class_<StoreSpec>(m, "StoreSpec", "dtype, layout and scaling; see transform/store.h.")
      .def("__init__", make_store, nb::kw_only(), "dtype"_a = "uint8", "channels_last"_a = true,
           "scale"_a = false, "normalize"_a = false, "mean"_a = std::vector{0.0, 0.0, 0.0},
           "std"_a = std::vector{1.0, 1.0, 1.0}, "erase"_a = nb::none())
      .def_prop_ro("dtype",
                   [](const StoreSpec& s) { return kDTypes[static_cast<size_t>(s.dtype)]; })
      .def_ro("channels_last", &StoreSpec::channels_last)
      .def_ro("scale", &StoreSpec::scale)
      .def_ro("normalize", &StoreSpec::normalize)
      .def_ro("mean", &StoreSpec::mean)
      .def_ro("std", &StoreSpec::std);
  m.def("erase", run_erase, "picture"_a, "spec"_a, "seed"_a, "epoch"_a, "sample"_a, "draw"_a = 0,
        "view"_a = 0, "Erases of a stored picture, (h, w, 3 * itemsize) bytes, in place.");
}

}  // namespace

void register_transform(nb::module_& m) {
  register_store(m);
  m.def(
      "resize",
      [](const Image& image, const View& view, const std::string& filter, int chunk, int repeat,
         std::vector<int> fill) {
        return run_view(image, view, filter, StoreSpec{}, chunk, repeat, std::move(fill));
      },
      "image"_a, "view"_a, "filter"_a = "bilinear", "chunk"_a = 16, "repeat"_a = 1,
      "fill"_a = std::vector<int>{},
      "The window of a view of an (H, W, 3) uint8 picture, (h, w, 3) uint8. `chunk` rows go in at "
      "a time; `repeat` times over (benchmarks). fill: as GeometrySpec's.");
  m.def(
      "resize_store", run_view, "image"_a, "view"_a, "filter"_a, "spec"_a, "chunk"_a = 16,
      "repeat"_a = 1, "fill"_a = std::vector<int>{},
      "resize, stored by the StoreSpec: the bytes, (h, w, 3 * itemsize) or (3, h, w * itemsize).");
  m.def("store", run_store, "image"_a, "spec"_a, "repeat"_a = 1,
        "An (h, w, 3) uint8 picture as the StoreSpec says: the bytes, as resize_store's.");
}

// ---- Operations on pixels: their list, the spec that the engine takes, and one picture at a time

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

// ---- A view of one encoded picture of any format, as the engine cuts it

namespace {

constexpr uint8_t kUntouched = 0xA5;

// What lies between the rows stays as it was: tests look at it.
nb::ndarray<nb::numpy, uint8_t> cut(const BytesArg& data, View view, const FormatArg& format,
                                    const StoreSpec* wanted, bool nearest,
                                    const std::string& filter, int fill, std::vector<int> colour,
                                    const RawArg& raw, size_t gap, const PixelSpec* pixels,
                                    const PixelSpec* source, int repeat) {
  view.filter = by_name<Filter>("filter", kFilters, filter);
  const StoreSpec store = wanted == nullptr ? StoreSpec() : *wanted;
  const auto spec_of = [](const PixelSpec* spec) { return spec == nullptr ? PixelSpec() : *spec; };
  const CutPlan plan({to_format(format), nearest, spec_of(pixels), store, fill, spec_of(source),
                      std::move(colour)});
  const auto [columns, lines] = view.made();
  const size_t width = static_cast<size_t>(std::max(columns, 0));
  const size_t height = static_cast<size_t>(std::max(lines, 0));
  const size_t channels = static_cast<size_t>(plan.spec().format.channels);
  const size_t planes = store.channels_last ? 1 : channels;
  const size_t row = width * dtype_size(store.dtype) * (store.channels_last ? channels : 1) + gap;
  std::unique_ptr<uint8_t[]> out(new uint8_t[planes * height * row]);
  {
    const GilRelease release;
    std::fill_n(out.get(), planes * height * row, kUntouched);
    Decoder decoder;
    Resampler resampler;
    PixelStage stage;
    Cutter cutter(resampler, stage);
    for (int i = 0; i < repeat; ++i) {
      const ImageInfo info = open_picture(decoder, data, format, raw);
      cutter.begin(view, plan, {out.get(), row, row * height}, {epoch_key(0, 0), 0, 0},
                   {static_cast<int>(info.width), static_cast<int>(info.height)});
      decoder.decode(cutter.source(), cutter);
      cutter.end();
    }
  }
  uint8_t* const bytes = out.release();
  const nb::capsule owner(bytes, [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
  return {bytes, {planes, height, row}, owner};
}

}  // namespace

void register_cut(nb::module_& m) {
  m.def("cut", cut, "data"_a, "view"_a, "format"_a = FormatArg{3, 8, false}, "store"_a = nb::none(),
        "nearest"_a = false, "filter"_a = "bilinear", "fill"_a = 0, "colour"_a = std::vector<int>{},
        "raw"_a = nb::none(), "gap"_a = 0, "pixels"_a = nb::none(), "source"_a = nb::none(),
        "repeat"_a = 1,
        "The window of a view of an encoded picture (uint8 array), or of raw pixels of (width, "
        "height, channels, bits), opened in a format (channels, bits, ids): the stored bytes, "
        "(planes, height, bytes of a row + gap). `pixels`, `source` (of the whole picture): "
        "PixelSpecs, drawn for sample 0, epoch 0, seed 0; `repeat` times over (benchmarks).");
}

// ---- Mosaics: where pictures lie, for tests and for who looks at a plan

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
