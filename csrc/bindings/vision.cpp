// What processors of vision-language models make of pictures: sizes, and rows of one picture.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "convert.h"
#include "decode/decode.h"
#include "gil.h"
#include "register.h"
#include "views.h"
#include "vision/cutter.h"
#include "vision/numbers.h"
#include "vision/rule.h"
#include "vision/values.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fastload::bindings {
namespace {

using SizesArg = nb::ndarray<const int32_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
using CountsArg = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Numbers however they are nested, one behind the other.
void add_values(nb::handle given, std::vector<double>& values) {
  if (nb::isinstance<nb::sequence>(given)) {
    for (const nb::handle one : given) add_values(one, values);
  } else {
    values.push_back(nb::cast<double>(given));
  }
}

VisionNumber to_number(nb::handle given) {
  VisionNumber number;
  if (nb::isinstance<nb::str>(given)) {
    number.name = nb::cast<std::string>(given);
  } else {
    add_values(given, number.values);
  }
  return number;
}

void make_rule(VisionRule* self, const std::string& family, const nb::kwargs& given) {
  std::vector<std::pair<std::string, VisionNumber>> numbers;
  for (const auto& [name, value] : given) {
    numbers.emplace_back(nb::cast<std::string>(name), to_number(value));
  }
  new (self) VisionRule(vision_rule(family, numbers));
}

nb::dict plan_one(const VisionRule& rule, int width, int height, int pictures) {
  const VisionSizes sizes = plan(rule, width, height, pictures);
  nb::dict bytes, found;
  for (const DType dtype : {DType::kUint8, DType::kBfloat16, DType::kFloat32}) {
    bytes[kDTypes[static_cast<size_t>(dtype)]] = rule.row_bytes(dtype);
  }
  found["height"] = sizes.height;
  found["width"] = sizes.width;
  found["rows"] = sizes.rows;
  found["row_bytes"] = bytes;
  found["grid"] = nb::make_tuple(sizes.grid_height, sizes.grid_width);
  found["tokens"] = sizes.tokens;
  return found;
}

template <typename T>
nb::object owned(std::unique_ptr<T[]> data, const std::vector<size_t>& shape) {
  T* const raw = data.release();
  const nb::capsule owner(raw, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T>(raw, shape.size(), shape.data(), owner));
}

nb::tuple plan_all(const VisionRule& rule, const SizesArg& given,
                   const std::optional<CountsArg>& pictures, bool strict) {
  const size_t count = given.shape(0);
  if (pictures && pictures->shape(0) != count) {
    throw Error(ErrorKind::kValue, "pictures must have a number for each size, " +
                                       std::to_string(count) +
                                       ". Found: " + std::to_string(pictures->shape(0)) + ".");
  }
  auto rows = std::make_unique<int64_t[]>(count), tokens = std::make_unique<int64_t[]>(count);
  auto grids = std::make_unique<int32_t[]>(2 * count);
  {
    const GilRelease release;
    plan_many(rule, {given.data(), 2 * count}, pictures ? pictures->data() : nullptr, strict,
              {rows.get(), grids.get(), tokens.get()});
  }
  return nb::make_tuple(owned(std::move(rows), {count}), owned(std::move(grids), {count, 2}),
                        owned(std::move(tokens), {count}));
}

// bfloat16 as uint16.
nb::object in_dtype(std::unique_ptr<uint8_t[]> out, const std::vector<size_t>& shape,
                    DType dtype) {
  uint8_t* const raw = out.release();
  const nb::capsule owner(raw, [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
  const nb::dlpack::dtype type = dtype == DType::kUint8     ? nb::dtype<uint8_t>()
                                 : dtype == DType::kFloat32 ? nb::dtype<float>()
                                                            : nb::dtype<uint16_t>();
  return nb::cast(nb::ndarray<nb::numpy>(raw, shape.size(), shape.data(), owner, nullptr, type));
}

nb::object rows_of(const VisionRule& rule, const BytesArg& data, int pictures,
                   const std::string& dtype_name, int repeat) {
  const auto dtype = by_name<DType>("dtype", kDTypes, dtype_name);
  std::unique_ptr<uint8_t[]> out;
  std::vector<size_t> shape;
  {
    const GilRelease release;
    const VisionPlan plan(rule, dtype);
    Decoder decoder;
    VisionCutter cutter;
    for (int i = 0; i < repeat; ++i) {
      const ImageInfo info = decoder.open(as_bytes(data));
      const VisionSizes sizes = fastload::plan(rule, static_cast<int>(info.width),
                                               static_cast<int>(info.height), pictures);
      const auto rows = static_cast<size_t>(sizes.rows);
      if (!out) out.reset(new uint8_t[rows * rule.row_bytes(dtype)]);
      cutter.begin(plan, sizes, out.get());
      decoder.decode(cutter.source(), cutter);
      cutter.end();
      shape = rule.row_shape(dtype);
      shape.insert(shape.begin(), rows);
    }
  }
  return in_dtype(std::move(out), shape, dtype);
}

// The last pixels are copied, so that kernels may read behind them.
void convert_pixels(const VisionValues& values, Bytes pixels, uint8_t* out) {
  constexpr size_t kLast = 3 * RowSink::kSlack;
  const size_t first = pixels.size() - std::min(pixels.size(), kLast);
  std::array<uint8_t, kLast + RowSink::kSlack> last{};
  std::ranges::copy(pixels.subspan(first), last.begin());
  const ValueLine line = values.line();
  ValueRuns runs;
  runs.count = 1;
  runs.length = first;
  if (first > 0) line(pixels.data(), runs, values.interleaved(), out);
  runs.length = pixels.size() - first;
  line(last.data(), runs, values.interleaved(), out + first * dtype_size(values.dtype()));
}

nb::object values_of(const VisionRule& rule, const BytesArg& data, const std::string& dtype_name) {
  const auto dtype = by_name<DType>("dtype", kDTypes, dtype_name);
  const Bytes pixels = as_bytes(data);
  if (pixels.size() % 3 != 0) {
    throw Error(ErrorKind::kValue, "Pixels have three bytes each. Found: " +
                                       std::to_string(pixels.size()) + " bytes.");
  }
  if (dtype == DType::kUint8) throw Error(ErrorKind::kValue, "uint8 are the pixels themselves.");
  std::unique_ptr<uint8_t[]> out;
  {
    const GilRelease release;
    const VisionValues values(rule, dtype);
    // Not cleared: all of it is written.
    out.reset(new uint8_t[pixels.size() * dtype_size(dtype)]);
    convert_pixels(values, pixels, out.get());
  }
  return in_dtype(std::move(out), {pixels.size()}, dtype);
}

}  // namespace

void register_vision(nb::module_& m) {
  nb::class_<VisionRule>(m, "VisionRule",
                         "What a family's processor does with pictures; see vision/rule.h.")
      .def("__init__", make_rule, "family"_a, "numbers"_a,
           nb::sig("def __init__(self, family: str, **numbers: object) -> None"),
           "family: qwen2_vl, siglip2, idefics3, llava_onevision, internvl, gemma3 or paligemma. "
           "numbers: those of vision/numbers.cpp; what is not given is as in the family's class.")
      .def("plan", plan_one, "width"_a, "height"_a, "pictures"_a = 1,
           "A picture's height, width (as resized and tiled), rows, row_bytes (by dtype), grid "
           "(patches, tiles or crops down and across) and tokens. pictures: of its sample.")
      .def(
          "row_shape",
          [](const VisionRule& rule, const std::string& dtype) {
            return rule.row_shape(by_name<DType>("dtype", kDTypes, dtype));
          },
          "dtype"_a = "float32", "The shape of a row.");
  m.def("vision_plans", plan_all, "rule"_a, "sizes"_a, "pictures"_a = nb::none(), "strict"_a = true,
        "Of many pictures, sizes (n, 2) int32 of width and height: rows (n,) int64, grids (n, 2) "
        "int32, tokens (n,) int64. pictures: of each one's sample, (n,) int32; None: 1. Without "
        "strict a picture that the rule has no answer for has 0 rows; else that is an error.");
  m.def("vision_rows", rows_of, "rule"_a, "data"_a, "pictures"_a = 1, "dtype"_a = "float32",
        "repeat"_a = 1,
        "The rows of an encoded picture (uint8 array): float32, bfloat16 (as uint16) or uint8 (the "
        "bytes, without repetition). `repeat` times over (benchmarks).");
  m.def("vision_values", values_of, "rule"_a, "pixels"_a, "dtype"_a = "float32",
        "The values of RGB pixels (uint8, one behind the other), (n,) float32 or bfloat16 (as "
        "uint16).");
}

}  // namespace fastload::bindings
