// Resize and store for one picture, and the specs that the prefetch engine takes.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
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
#include <vector>

#include "base/error.h"
#include "gil.h"
#include "register.h"
#include "transform/cut.h"
#include "transform/resample.h"
#include "transform/store.h"
#include "transform/view.h"
#include "views.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fastload::bindings {
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

}  // namespace fastload::bindings
