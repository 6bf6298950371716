// Rules of vision-language models on a picture of raw pixels, up to the rows that a model takes.
// What plan() says fits together; its rows are filled, all of them, and nothing beside them; at two
// instruction sets, and however the picture's rows come, they are the same. Of a picture of one
// colour they have that colour in the right places, or their border's. Far sides are planned alone.
//
// Input: 64 control bytes (levels, rule, sides, dtype, chunks) and more, then the pixels.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/cpu.h"
#include "input.h"
#include "vision/cutter.h"
#include "vision/numbers.h"
#include "vision/rule.h"

namespace {

using namespace fastload;
using namespace fastload::fuzz;
using Pixels = std::vector<uint8_t>;
using Numbers = std::vector<std::pair<std::string, VisionNumber>>;

constexpr size_t kControl = 64;
constexpr int64_t kMostMade = 1 << 18;  // pixels of all steps, and elements of all rows

constexpr std::string_view kAll =
    "qwen2_vl siglip2 idefics3 llava_onevision internvl gemma3 paligemma";
// A number, the families that have it, and what keeps a picture's rows few.
struct Drawn {
  std::string_view name, families;
  int least, most;
};
constexpr std::array<Drawn, 16> kDrawn{{
    {"patch", "qwen2_vl siglip2", 1, 24},
    {"merge", "qwen2_vl", 1, 4},
    {"temporal", "qwen2_vl", 1, 3},
    {"min_pixels", "qwen2_vl", 1, 3000},
    {"max_pixels", "qwen2_vl", 1, 9000},
    {"first_max_pixels", kAll, 0, 3000},
    {"max_patches", "siglip2", 1, 60},
    {"longest_edge", "idefics3", 1, 90},
    {"min_tiles", "internvl", 1, 6},
    {"max_tiles", "internvl llava_onevision", 1, 12},
    {"crop_to_patches", "internvl idefics3", 0, 1},
    {"tokens", "idefics3 llava_onevision internvl gemma3 paligemma", 1, 900},
    {"pan_and_scan", "gemma3", 0, 1},
    {"pan_min_crop", "gemma3", 1, 40},
    {"pan_max_crops", "gemma3", 1, 6},
    {"pan_min_ratio", "gemma3", 0, 4},
}};
constexpr std::array<const char*, 7> kFamilies{"qwen2_vl", "siglip2", "idefics3", "llava_onevision",
                                               "internvl", "gemma3",  "paligemma"};
constexpr std::array<const char*, 3> kFilters{"bilinear", "bicubic", "lanczos"};

// Most often a small one; now and then any, which the rule may refuse.
double take_number(const Drawn& of, Input& in) {
  if (in.u8() % 16 == 0) return static_cast<double>(in.u16()) * in.u16();
  return in.in(of.least, of.most);
}

void take_colours(Input& in, Numbers& numbers) {
  VisionNumber mean, std;
  for (int c = 0; c < 3; ++c) {
    mean.values.push_back(in.u8() / 255.0);
    std.values.push_back((1 + in.u8()) / 256.0);
  }
  numbers.emplace_back("mean", mean);
  numbers.emplace_back("std", std);
  const double rescale = in.coin() ? 1.0 / 255 : in.u16() / (1.0 + 1.0 * in.u16() * in.u16());
  numbers.emplace_back("rescale", VisionNumber{{rescale}, ""});
}

// Nothing where the numbers do not go together.
std::optional<VisionRule> take_rule(Input& in) {
  const std::string family = kFamilies[in.u8() % kFamilies.size()];
  Numbers numbers{{"filter", {{}, kFilters[in.u8() % kFilters.size()]}}};
  for (const Drawn& one : kDrawn) {
    if (one.families.find(family) == std::string_view::npos) continue;
    numbers.emplace_back(one.name, VisionNumber{{take_number(one, in)}, ""});
  }
  const int tile = in.in(1, 40);
  if (family == "idefics3" || family == "llava_onevision" || family == "internvl") {
    numbers.emplace_back("tile", VisionNumber{{static_cast<double>(tile)}, ""});
  }
  if (family == "gemma3" || family == "paligemma") {
    numbers.emplace_back("size", VisionNumber{{1.0 * in.in(1, 60), 1.0 * in.in(1, 60)}, ""});
  }
  if (family == "llava_onevision") {
    VisionNumber pinpoints;
    for (int left = 2 * in.in(1, 4); left > 0; --left) {
      pinpoints.values.push_back(tile * in.in(1, 4));
    }
    numbers.emplace_back("pinpoints", pinpoints);
  }
  if (in.coin()) take_colours(in, numbers);
  try {
    return vision_rule(family, numbers);
  } catch (const Error& error) {
    FUZZ_CHECK(error.kind() == ErrorKind::kValue);
    return std::nullopt;
  }
}

bool is_inside(const Rect& part, int width, int height) {
  return part.x >= 0 && part.y >= 0 && part.width > 0 && part.height > 0 && part.width <= width &&
         part.height <= height && part.x <= width - part.width && part.y <= height - part.height;
}

// Each step takes from one before it, within its sides; what is cut is whole rows of the rule's.
void check_plan(const VisionRule& rule, const VisionSizes& sizes) {
  const auto [high, wide] = rule.unit();
  int64_t rows = 0;
  for (size_t i = 0; i < sizes.steps.size(); ++i) {
    const VisionStep& step = sizes.steps[i];
    FUZZ_CHECK(step.from >= VisionStep::kSource && step.from < static_cast<int>(i));
    const bool of_source = step.from == VisionStep::kSource;
    const VisionStep* const from =
        of_source ? nullptr : &sizes.steps[static_cast<size_t>(step.from)];
    const int width = of_source ? sizes.source_width : from->width;
    const int height = of_source ? sizes.source_height : from->height;
    FUZZ_CHECK(step.width > 0 && step.height > 0);
    if (step.resized) {
      FUZZ_CHECK(is_inside(step.part, width, height));
    } else {
      FUZZ_CHECK(step.part.width == width && step.part.height == height);
      FUZZ_CHECK(is_inside(step.part, step.width, step.height));
    }
    if (step.first_row == VisionStep::kNotCut) continue;
    FUZZ_CHECK(step.first_row == rows && step.width % wide == 0 && step.height % high == 0);
    rows += int64_t{step.width / wide} * (step.height / high);
  }
  FUZZ_CHECK(rows > 0 && rows == sizes.rows && sizes.tokens >= 0);
  FUZZ_CHECK(sizes.grid_height >= 0 && sizes.grid_width >= 0);
  FUZZ_CHECK(int64_t{sizes.grid_height} * sizes.grid_width <= rows);
}

// Nothing where the rule has no answer. plan_many() says the same.
std::optional<VisionSizes> planned(const VisionRule& rule, int width, int height, int pictures) {
  std::optional<VisionSizes> found;
  try {
    found = plan(rule, width, height, pictures);
  } catch (const Error& error) {
    FUZZ_CHECK(error.kind() == ErrorKind::kValue);
  }
  if (found) check_plan(rule, *found);
  const std::array<int32_t, 2> sides{width, height};
  int64_t rows = -1, tokens = -1;
  std::array<int32_t, 2> grid{-1, -1};
  plan_many(rule, sides, &pictures, false, {&rows, grid.data(), &tokens});
  FUZZ_CHECK(rows == (found ? found->rows : 0) && tokens == (found ? found->tokens : 0));
  FUZZ_CHECK(grid[0] == (found ? found->grid_height : 0));
  FUZZ_CHECK(grid[1] == (found ? found->grid_width : 0));
  return found;
}

bool is_small(const VisionRule& rule, const VisionSizes& sizes) {
  int64_t pixels = 0;
  for (const VisionStep& step : sizes.steps) pixels += int64_t{step.width} * step.height;
  return pixels <= kMostMade &&
         sizes.rows * static_cast<int64_t>(rule.row_bytes(DType::kFloat32)) <= 4 * kMostMade;
}

// A picture, and what a sink may read behind it.
struct Picture {
  int width, height;
  Pixels pixels;
  [[nodiscard]] size_t stride() const { return static_cast<size_t>(width) * 3; }
  void feed(RowSink& sink, int end, int chunk) const {
    for (int y = 0; y < end; y += chunk) {
      sink.rows(pixels.data() + stride() * static_cast<size_t>(y), stride(), y,
                std::min(chunk, end - y));
    }
  }
};

Picture take_picture(Input& in, int width, int height) {
  Picture picture{width, height, {}};
  picture.pixels.resize(picture.stride() * static_cast<size_t>(height) + RowSink::kSlack);
  const Bytes rest = in.rest();
  for (size_t i = 0; i < picture.pixels.size() && !rest.empty(); ++i) {
    picture.pixels[i] = rest[i % rest.size()];
  }
  return picture;
}

// How a picture's rows come: so many at a time, after so many of a decoder that gave up.
struct Coming {
  int chunk = 1, before = 0;
};

Pixels make(VisionCutter& cutter, const VisionPlan& how, const VisionSizes& sizes,
            const Picture& picture, const Coming& coming, uint8_t fill) {
  Pixels out(how.rule().row_bytes(how.dtype()) * static_cast<size_t>(sizes.rows), fill);
  cutter.begin(how, sizes, out.data());
  FUZZ_CHECK((cutter.source() == Rect{0, 0, picture.width, picture.height}));
  if (coming.before > 0) {
    picture.feed(cutter, coming.before, coming.chunk);
    cutter.restart();
  }
  picture.feed(cutter, picture.height, coming.chunk);
  cutter.end();
  return out;
}

// Bytes of channel c are that of the colour, or of a border.
void check_colour(VisionCutter& cutter, const VisionRule& rule, const VisionSizes& sizes,
                  Picture picture) {
  // A border that is resized with the picture.
  if (std::ranges::any_of(sizes.steps, &VisionStep::coloured)) return;
  std::array<uint8_t, 3> colour{};
  std::copy_n(picture.pixels.begin(), 3, colour.begin());
  for (size_t i = 0; i < picture.pixels.size(); ++i) picture.pixels[i] = colour[i % 3];
  const bool has_border = std::ranges::any_of(
      sizes.steps, [](const VisionStep& step) { return !step.resized; });
  const Pixels found = make(cutter, VisionPlan(rule, DType::kUint8), sizes, picture, {}, 0xA5);
  const auto [high, wide] = rule.unit();
  const size_t plane = static_cast<size_t>(high) * static_cast<size_t>(wide);
  const bool in_turn = rule.family == VisionFamily::kSiglip2;
  for (size_t i = 0; i < found.size(); ++i) {
    const uint8_t wanted = colour[(in_turn ? i : i / plane) % 3];
    FUZZ_CHECK(found[i] == wanted || (has_border && found[i] == 0));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size <= kControl) return 0;
  Input in(Bytes(data, size));
  const auto levels = take_levels(in);
  const auto dtype = std::array{DType::kUint8, DType::kBfloat16, DType::kFloat32}[in.u8() % 3];
  const int pictures = in.in(1, 2);
  const bool is_long = in.u8() % 8 == 0;
  const int width = in.in(1, is_long ? 2000 : 90), height = in.in(1, is_long ? 3 : 90);
  const Coming first{in.in(1, 20), 0}, second{in.in(1, 20), in.in(0, height)};
  const int far_width = in.u16() * (1 + in.u8() * in.u8() / 4);
  const int far_height = in.coin() ? std::numeric_limits<int>::max() : in.u16();
  const std::optional<VisionRule> rule = take_rule(in);
  if (!rule) return 0;
  planned(*rule, far_width, far_height, pictures);
  const std::optional<VisionSizes> sizes = planned(*rule, width, height, pictures);
  if (!sizes || !is_small(*rule, *sizes)) return 0;
  std::optional<VisionPlan> how;
  try {
    how.emplace(*rule, dtype);
  } catch (const Error& error) {  // numbers that are not finite
    FUZZ_CHECK(error.kind() == ErrorKind::kValue);
    return 0;
  }
  const Picture picture = take_picture(in, width, height);
  VisionCutter cutter;
  set_simd_level(simd_level_name(levels.first));
  const Pixels found = make(cutter, *how, *sizes, picture, first, 0xA5);
  set_simd_level(simd_level_name(levels.second));
  FUZZ_CHECK(make(cutter, *how, *sizes, picture, second, 0x5A) == found);
  check_colour(cutter, *rule, *sizes, picture);
  return 0;
}
