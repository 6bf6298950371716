// Operations on pixels and steps of the geometry, in any order and nested, on a picture of raw
// pixels: at two instruction sets the bytes are the same, and the view is of the picture. What a
// motion says of the pixels is taken by masks, too.
//
// Input: 64 control bytes (sides, steps, operations, store, sample), more of them, then the pixels.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/cpu.h"
#include "input.h"
#include "transform/cut.h"
#include "transform/geometry/registry.h"
#include "transform/pixels/registry.h"

namespace {

using namespace fastload;
using namespace fastload::fuzz;
using Pixels = std::vector<uint8_t>;

constexpr size_t kControl = 64;
constexpr int kMostSide = 40, kMostMade = 160;

// A number that Python would let pass for a parameter of that name.
double number_for(std::string_view name, Input& in) {
  const auto has = [&](std::string_view word) { return name.find(word) != std::string_view::npos; };
  if (has("probability")) return in.in(0, 4) / 4.0;
  if (has("scale_min") || has("ratio_min")) return in.in(1, 8) / 8.0;
  if (has("scale_max")) return 1.0;
  if (has("ratio_max")) return in.in(8, 16) / 8.0;
  if (has("side_min")) return 1.0;
  if (has("side_max")) return in.in(4, 12) / 4.0;
  if (has("trials")) return in.in(1, 5);
  if (has("option")) return in.in(0, 9) / 10.0;
  if (has("turns")) return in.in(0, 3);
  if (name == "end") return in.in(33, 64);
  if (name == "least") return in.in(1, 32);
  if (has("max_ratio") || has("max_size")) return in.in(0, 64);
  if (has("rounded_up") || has("scale_up") || has("center") || has("anywhere")) return in.in(0, 1);
  return in.in(1, 64);
}

// Steps that may follow each other, of each stage at most one; flips stand anywhere.
constexpr std::array<std::string_view, 6> kStages{
    "random_zoom_out",
    "random_iou_crop",
    "bucket_cover letterbox random_resize random_resized_crop random_shortest_size resize_exact "
    "resize_shorter resize_to_patches scale_jitter",
    "center_crop fixed_size_crop random_crop",
    "pad pad_to",
    "quarter_turn"};

void take_step(std::string_view stage, Input& in, GeometrySpec& spec) {
  std::vector<const GeometryOperation*> some;
  for (const GeometryOperation* const step : geometry_operations()) {
    const std::string_view name = step->name;
    const bool is_any = name.ends_with("_flip") || name == "random_filter";
    const size_t at = (" " + std::string(stage) + " ").find(" " + std::string(name) + " ");
    if (is_any || at != std::string::npos) some.push_back(step);
  }
  const GeometryOperation& step = *some[in.u8() % some.size()];
  std::vector<double> numbers;
  for (const char* const name : step.parameters) numbers.push_back(number_for(name, in));
  spec.add(step.name, numbers);
}

GeometrySpec take_geometry(Input& in) {
  GeometrySpec spec;
  const uint8_t which = in.u8();
  for (size_t i = 0; i < kStages.size(); ++i) {
    if ((which >> i & 1) != 0) take_step(kStages[i], in, spec);
  }
  if (in.coin()) spec.filter = Filter::kBicubic;
  return spec;
}

PixelNode take_node(Input& in, int depth) {
  constexpr const char* kGroups[] = {"all",    "choice",        "order",        "some",
                                     "augmix", "mix_and_blend", "blend_in_turn"};
  PixelNode node{"", in.in(1, 4) / 4.0, {}, {}};
  const uint8_t kind = in.u8();
  if (depth == 0 || kind % 3 != 0) {
    const auto all = pixel_operations();
    const PixelOperation& operation = *all[kind % all.size()];
    node.name = operation.name;
    for (size_t i = 0; i < operation.parameters.size(); ++i) {
      const double most = in.coin() ? 1 : in.in(1, 256);
      node.numbers.emplace_back("uniform", std::vector<double>{0, most});
    }
    return node;
  }
  const auto group = kGroups[kind / 3 % 7];
  node.name = group;
  for (int left = 1 + in.u8() % 3; left > 0; --left) node.parts.push_back(take_node(in, depth - 1));
  const std::string_view name = group;
  if (name == "some") node.numbers.emplace_back(in.in(0, static_cast<int>(node.parts.size())));
  if (name == "some" || name == "choice") {
    for (size_t i = 0; i < node.parts.size(); ++i) node.numbers.emplace_back(1.0 + in.u8() % 4);
  }
  if (name == "augmix" || name == "mix_and_blend" || name == "blend_in_turn") {
    node.numbers.emplace_back(in.in(1, 8) / 4.0);
  }
  return node;
}

PixelSpec take_pixels(Input& in, const PixelSpec& before = {}) {
  std::vector<PixelNode> nodes;
  for (int left = in.u8() % 4; left > 0; --left) nodes.push_back(take_node(in, 2));
  return PixelSpec(std::move(nodes), before);
}

CutSpec take_spec(Input& in) {
  CutSpec spec;
  spec.source = in.u8() % 4 == 0 ? take_pixels(in) : PixelSpec();
  spec.pixels = take_pixels(in, spec.source);
  spec.store.dtype = static_cast<DType>(in.u8() % 4);
  spec.store.channels_last = in.coin();
  spec.store.scale = spec.store.dtype != DType::kUint8 && in.coin();
  if (in.coin()) spec.colour = {in.u8(), in.u8(), in.u8()};
  if (in.u8() % 4 == 0) {
    spec.store.erase.probability = 1;
    spec.store.erase.area = {0.02, 0.4};
    spec.store.erase.log_ratio = {-1, 1};
    spec.store.erase.count = {1, 1 + in.u8() % 3};
    spec.store.erase.value = {9, 8, 7};
    // Normal numbers are no bytes: Python refuses them.
    const bool normal = spec.store.dtype != DType::kUint8;
    if (normal) spec.store.erase.fill = static_cast<EraseSpec::Fill>(in.u8() % 3);
  }
  return spec;
}

struct Case {
  int width = 0, height = 0;
  Pixels pixels;  // and slack
  View view;
  SampleRng rng;
};

Pixels make(const Case& c, const CutPlan& plan) {
  const CutSpec& spec = plan.spec();
  const Sides made = c.view.made();
  Pixels out(dtype_size(spec.store.dtype) * 3 * static_cast<size_t>(made.width) *
                 static_cast<size_t>(made.height),
             0xA5);
  Resampler resampler;
  PixelStage stage;
  Cutter cutter(resampler, stage);
  cutter.begin(c.view, plan, {out.data(), 0, 0}, c.rng, {c.width, c.height, {}});
  const Rect source = cutter.source();
  FUZZ_CHECK(source.x >= 0 && source.y >= 0 && source.width > 0 && source.height > 0);
  FUZZ_CHECK(source.width <= c.width - source.x && source.height <= c.height - source.y);
  const size_t stride = static_cast<size_t>(c.width) * 3;
  cutter.rows(
      c.pixels.data() + static_cast<size_t>(source.y) * stride + static_cast<size_t>(source.x) * 3,
      stride, 0, source.height);
  cutter.end();
  return out;
}

// Ids follow what moves pixels: each is one that the picture has, or the fill.
void check_ids(const Case& c, const PixelSpec& pixels) {
  if (pixels.moving() == nullptr || pixels.moving_in_mix() != nullptr) return;
  CutSpec spec;
  spec.format = {1, 8, true};
  spec.nearest = true;
  spec.pixels = pixels;
  spec.fill = 200;
  const CutPlan plan(spec);
  const Pixels ids(static_cast<size_t>(c.width) * static_cast<size_t>(c.height) + RowSink::kSlack,
                   7);
  const Sides made = c.view.made();
  Pixels out(static_cast<size_t>(made.width) * static_cast<size_t>(made.height), 1);
  Resampler resampler;
  PixelStage stage;
  Cutter cutter(resampler, stage);
  cutter.begin(c.view, plan, {out.data(), 0, 0}, c.rng, {c.width, c.height, {}});
  const Rect source = cutter.source();
  cutter.rows(ids.data(), static_cast<size_t>(c.width), 0, source.height);
  cutter.end();
  for (const uint8_t id : out) FUZZ_CHECK(id == 7 || id == 200);
}

// False: there is no such view.
bool draw(Case& c, const GeometrySpec& geometry) {
  const BoxXyxy boxes[] = {{1, 1, c.width / 2.0, c.height - 0.5},
                           {c.width / 3.0, 0, 1.0 * c.width, c.height / 2.0}};
  try {
    c.view = draw_view(geometry, {c.width, c.height, boxes}, c.rng);
  } catch (const Error& error) {
    FUZZ_CHECK(error.kind() == ErrorKind::kValue || error.kind() == ErrorKind::kLimit);
    return false;
  }
  const Sides made = c.view.made();
  FUZZ_CHECK(made.width > 0 && made.height > 0);
  return made.width <= kMostMade && made.height <= kMostMade &&
         c.view.resized_width <= 4 * kMostMade && c.view.resized_height <= 4 * kMostMade;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size <= kControl) return 0;
  Input in(Bytes(data, size));
  Case c;
  const auto levels = take_levels(in);
  c.width = 1 + in.u8() % kMostSide;
  c.height = 1 + in.u8() % kMostSide;
  c.rng = {{static_cast<uint32_t>(in.u16()), 2}, in.u8(), 0};
  const GeometrySpec geometry = take_geometry(in);
  std::optional<CutPlan> plan;
  try {
    plan.emplace(take_spec(in));
  } catch (const Error& error) {  // groups of what cannot be grouped
    FUZZ_CHECK(error.kind() == ErrorKind::kValue || error.kind() == ErrorKind::kLimit);
    return 0;
  }
  if (!draw(c, geometry)) return 0;
  const Bytes rest = in.rest();
  c.pixels.resize(static_cast<size_t>(c.width) * static_cast<size_t>(c.height) * 3 +
                  RowSink::kSlack);
  for (size_t i = 0; i < c.pixels.size() && !rest.empty(); ++i) c.pixels[i] = rest[i % rest.size()];
  set_simd_level(simd_level_name(levels.first));
  const Pixels found = make(c, *plan);
  set_simd_level(simd_level_name(levels.second));
  FUZZ_CHECK(make(c, *plan) == found);
  check_ids(c, plan->spec().pixels);
  return 0;
}
