// A view of one encoded picture of any format, as the engine cuts it.
#include "transform/cut.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "convert.h"
#include "decode/decode.h"
#include "gil.h"
#include "register.h"
#include "views.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fastload::bindings {
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

}  // namespace fastload::bindings
