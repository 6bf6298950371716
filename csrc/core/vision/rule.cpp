#include "vision/rule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"

namespace fastload {
namespace {

using Sides2 = std::pair<int64_t, int64_t>;  // height, width

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::kValue, what); }

std::string sides_text(int64_t width, int64_t height) {
  return std::to_string(width) + " x " + std::to_string(height) + " pixels";
}

double quotient(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

int64_t whole(double value) { return static_cast<int64_t>(value); }

// ---- A picture's steps, one behind the other

// What a rule begins with: the picture, or what LLaMA-Factory makes of it first.
struct Given {
  int from = VisionStep::kSource;
  int width = 0, height = 0;
  [[nodiscard]] Rect all() const { return {0, 0, width, height}; }
};

// Adds steps to the sizes; checks that sides can be made.
class Steps {
 public:
  Steps(VisionSizes& sizes, Filter filter) : sizes_(sizes), filter_(filter) {}

  // LLaMA-Factory's resize, where the rule has one and the picture is too large for it.
  Given first(const VisionRule& rule, int width, int height) {
    const int64_t pixels = int64_t{width} * height;
    if (rule.first_max_pixels == 0 || pixels <= rule.first_max_pixels) {
      return {VisionStep::kSource, width, height};
    }
    const double factor = std::sqrt(quotient(rule.first_max_pixels, pixels));
    const Sides2 to{whole(height * factor), whole(width * factor)};
    // By Pillow's own default.
    const int made = resize(VisionStep::kSource, {0, 0, width, height}, to, Filter::kBicubic);
    return {made, static_cast<int>(to.second), static_cast<int>(to.first)};
  }

  int resize(int from, const Rect& part, Sides2 to) { return resize(from, part, to, filter_); }
  int resize(int from, const Rect& part, Sides2 to, Filter filter) {
    VisionStep step = made(from, part, to);
    step.filter = filter;
    return add(step);
  }
  int place(int from, const Rect& part, Sides2 canvas, bool coloured) {
    VisionStep step = made(from, part, canvas);
    step.resized = false;
    step.coloured = coloured;
    return add(step);
  }
  // All of a step's result.
  [[nodiscard]] Rect all(int of) const {
    const VisionStep& step = sizes_.steps[static_cast<size_t>(of)];
    return {0, 0, step.width, step.height};
  }
  // The step's result is cut into `rows` more rows.
  void cut(int of, int64_t rows) {
    sizes_.steps[static_cast<size_t>(of)].first_row = sizes_.rows;
    sizes_.rows += rows;
  }
  // The same, and it is the one whose size is told.
  void cut_main(int of, int64_t rows, Sides2 grid) {
    cut(of, rows);
    const VisionStep& step = sizes_.steps[static_cast<size_t>(of)];
    sizes_.height = step.height;
    sizes_.width = step.width;
    sizes_.grid_height = static_cast<int>(grid.first);
    sizes_.grid_width = static_cast<int>(grid.second);
  }

 private:
  static VisionStep made(int from, const Rect& part, Sides2 to) {
    constexpr int64_t kMaxSide = 1 << 24;  // the resize's own
    if (std::min(to.first, to.second) < 1 || std::max(to.first, to.second) > kMaxSide) {
      refuse("A resized picture's sides must be in [1, 16777216]. Found: " +
             sides_text(to.second, to.first) + ".");
    }
    VisionStep step;
    step.from = from;
    step.part = part;
    step.height = static_cast<int>(to.first);
    step.width = static_cast<int>(to.second);
    return step;
  }
  int add(const VisionStep& step) {
    sizes_.steps.push_back(step);
    return static_cast<int>(sizes_.steps.size()) - 1;
  }

  VisionSizes& sizes_;
  Filter filter_;
};

// ---- Qwen

// smart_resize(): sides of whole factors, so that min <= pixels <= max.
Sides2 smart_sides(int64_t height, int64_t width, const VisionRule& rule) {
  const int64_t factor = int64_t{rule.patch} * rule.merge;
  const double ratio = quotient(std::max(height, width), std::min(height, width));
  if (ratio > 200) {
    refuse("A picture's longer side must be at most 200 times its shorter one. Found: " +
           sides_text(width, height) + ".");
  }
  // Halves go to even, as Python's round().
  const auto nearest = [&](int64_t side) {
    return whole(std::nearbyint(quotient(side, factor))) * factor;
  };
  const auto in_factors = static_cast<double>(factor);
  Sides2 found{nearest(height), nearest(width)};
  const int64_t pixels = found.first * found.second;
  if (pixels > rule.max_pixels) {
    const double beta = std::sqrt(quotient(height * width, rule.max_pixels));
    const auto below = [&](int64_t side) {
      const double factors = std::floor(static_cast<double>(side) / beta / in_factors);
      return std::max(factor, whole(factors) * factor);
    };
    found = {below(height), below(width)};
  } else if (pixels < rule.min_pixels) {
    const double beta = std::sqrt(quotient(rule.min_pixels, height * width));
    const auto above = [&](int64_t side) {
      return whole(std::ceil(static_cast<double>(side) * beta / in_factors)) * factor;
    };
    found = {above(height), above(width)};
  }
  return found;
}

void plan_qwen(const VisionRule& rule, const Given& of, Steps& steps, VisionSizes& sizes) {
  const Sides2 to = smart_sides(of.height, of.width, rule);
  const Sides2 grid{to.first / rule.patch, to.second / rule.patch};
  steps.cut_main(steps.resize(of.from, of.all(), to), grid.first * grid.second, grid);
  sizes.tokens = sizes.rows / (int64_t{rule.merge} * rule.merge);
}

// ---- SigLIP2

// get_image_size_for_max_num_patches(): by halving the range of scales.
void plan_siglip2(const VisionRule& rule, const Given& of, Steps& steps, VisionSizes& sizes) {
  constexpr double kClose = 1e-5;
  const double patch = rule.patch;
  const auto patches = [&](int side, double scale) {
    return std::max(std::ceil(side * scale / patch), 1.0);
  };
  double low = kClose / 10, high = 100.0;
  while (high - low >= kClose) {
    const double scale = (low + high) / 2;
    const bool fits = patches(of.height, scale) * patches(of.width, scale) <= rule.max_patches;
    (fits ? low : high) = scale;
  }
  const Sides2 grid{whole(patches(of.height, low)), whole(patches(of.width, low))};
  const Sides2 to{grid.first * rule.patch, grid.second * rule.patch};
  steps.cut_main(steps.resize(of.from, of.all(), to), grid.first * grid.second, grid);
  sizes.tokens = sizes.rows;
}

// ---- Idefics3, SmolVLM

int64_t even(int64_t value) { return value + value % 2; }

// The longer side as it should be, within 4096.
Sides2 longest_sides(int64_t height, int64_t width, int64_t longest) {
  constexpr int64_t kMost = 4096;
  double ratio = quotient(width, height);
  if (width >= height) {
    width = longest;
    height = even(whole(static_cast<double>(width) / ratio));
  } else {
    height = longest;
    width = even(whole(static_cast<double>(height) * ratio));
  }
  height = std::max<int64_t>(height, 1);
  width = std::max<int64_t>(width, 1);
  ratio = quotient(width, height);
  if (width >= height && width > kMost) {
    width = kMost;
    height = whole(static_cast<double>(width) / ratio);
  } else if (height > width && height > kMost) {
    height = kMost;
    width = whole(static_cast<double>(height) * ratio);
  }
  return {std::max<int64_t>(height, 1), std::max<int64_t>(width, 1)};
}

// Of whole tiles.
Sides2 tiled_sides(int64_t height, int64_t width, int64_t tile) {
  const auto up = [&](int64_t side) { return (side + tile - 1) / tile * tile; };
  const double ratio = quotient(width, height);
  if (width >= height) {
    width = up(width);
    height = up(whole(static_cast<double>(width) / ratio));
  } else {
    height = up(height);
    width = up(whole(static_cast<double>(height) * ratio));
  }
  return {height, width};
}

void plan_idefics3(const VisionRule& rule, const Given& of, Steps& steps, VisionSizes& sizes) {
  const Sides2 first = longest_sides(of.height, of.width, rule.longest_edge);
  const int scaled = steps.resize(of.from, of.all(), first);
  const Sides2 one{rule.tile, rule.tile};
  if (rule.crop_to_patches) {
    const Sides2 second = tiled_sides(first.first, first.second, rule.tile);
    const int tiled = steps.resize(scaled, steps.all(scaled), second);
    if (second == one) {
      steps.cut_main(tiled, 1, {0, 0});
    } else {
      const Sides2 grid{second.first / rule.tile, second.second / rule.tile};
      steps.cut_main(tiled, grid.first * grid.second, grid);
      steps.cut(steps.resize(tiled, steps.all(tiled), one), 1);
    }
  } else {
    steps.cut_main(steps.resize(scaled, steps.all(scaled), one), 1, {0, 0});
  }
  sizes.tokens = sizes.rows * rule.tokens;
}

// ---- LLaVA-OneVision

// select_best_resolution(): the canvas that keeps most pixels, then that which wastes least.
Sides2 best_canvas(const VisionRule& rule, int height, int width) {
  Sides2 best{0, 0};
  int64_t most = 0, least_waste = std::numeric_limits<int64_t>::max();
  for (const auto& [high, wide] : rule.pinpoints) {
    const double scale = std::min(quotient(wide, width), quotient(high, height));
    const int64_t scaled = whole(width * scale) * whole(height * scale);
    const int64_t kept = std::min(scaled, int64_t{width} * height);
    const int64_t waste = int64_t{wide} * high - kept;
    if (kept > most || (kept == most && waste < least_waste)) {
      most = kept;
      least_waste = waste;
      best = {high, wide};
    }
  }
  return best;
}

// Python's a // b of floats above 0: the quotient is not rounded before it is floored.
int64_t floored(double a, double b) {
  const double quotient = (a - std::fmod(a, b)) / b;
  return whole(std::nearbyint(quotient));
}

// _get_unpadded_features(): tokens of the canvas without its borders, with one for each line's end.
int64_t unpadded_tokens(const VisionRule& rule, int height, int width, Sides2 grid) {
  const int64_t side = whole(std::sqrt(rule.tokens));
  int64_t down = side * grid.first, across = side * grid.second;
  // int(round(x, 7)): what is within half a step below a whole number is that number.
  const auto rounded = [](double x) {
    const double next = std::floor(x) + 1;
    return whole(next - x < 5e-8 ? next : x);
  };
  if (quotient(width, height) > quotient(across, down)) {
    const int64_t high = rounded(height * quotient(across, width));
    down -= (down - high) / 2 * 2;
  } else {
    const int64_t wide = rounded(width * quotient(down, height));
    across -= (across - wide) / 2 * 2;
  }
  const auto most = static_cast<double>(int64_t{rule.max_tiles} * side * side);
  const double ratio = std::sqrt(static_cast<double>(down * across) / most);
  if (ratio > 1.1) {
    down = floored(static_cast<double>(down), ratio);
    across = floored(static_cast<double>(across), ratio);
  }
  return down * across + down;
}

void plan_llava(const VisionRule& rule, const Given& of, int pictures, Steps& steps,
                VisionSizes& sizes) {
  const auto [from, width, height] = of;
  const Sides2 one{rule.tile, rule.tile};
  if (pictures > 1) {
    const int side = std::max(width, height);
    const Rect middle{(side - width) / 2, (side - height) / 2, width, height};
    const int square = steps.place(from, middle, {side, side}, true);
    steps.cut_main(steps.resize(square, steps.all(square), one), 1, {0, 0});
    sizes.tokens = int64_t{rule.tokens} + 1;
    return;
  }
  const Sides2 canvas = best_canvas(rule, height, width);
  const double across = quotient(canvas.second, width), down = quotient(canvas.first, height);
  Sides2 to = canvas;
  if (across < down) {
    to.first = std::min(whole(std::ceil(height * across)), canvas.first);
  } else {
    to.second = std::min(whole(std::ceil(width * down)), canvas.second);
  }
  const Sides2 grid{canvas.first / rule.tile, canvas.second / rule.tile};
  steps.cut(steps.resize(from, of.all(), one), 1);
  const int scaled = steps.resize(from, of.all(), to);
  const Rect middle{static_cast<int>((canvas.second - to.second) / 2),
                    static_cast<int>((canvas.first - to.first) / 2), static_cast<int>(to.second),
                    static_cast<int>(to.first)};
  const int placed = steps.place(scaled, middle, canvas, false);
  steps.cut_main(placed, grid.first * grid.second, grid);
  sizes.tokens = rule.tokens + unpadded_tokens(rule, height, width, grid);
}

// ---- InternVL

// get_optimal_tiled_canvas(): rows and columns of tiles whose ratio is nearest the picture's.
Sides2 best_grid(const VisionRule& rule, int height, int width) {
  const double ratio = quotient(width, height);
  const auto area = static_cast<double>(int64_t{width} * height);
  double least = std::numeric_limits<double>::infinity();
  Sides2 best{1, 1};
  for (int tiles = rule.min_tiles; tiles <= rule.max_tiles; ++tiles) {
    for (int columns = 1; columns <= tiles; ++columns) {
      if (tiles % columns != 0) continue;
      const int rows = tiles / columns;
      const double away = std::abs(ratio - quotient(columns, rows));
      const bool tie = away == least && area > 0.5 * rule.tile * rule.tile * columns * rows;
      if (away < least || tie) best = {rows, columns};
      least = std::min(least, away);
    }
  }
  return best;
}

void plan_internvl(const VisionRule& rule, const Given& of, Steps& steps, VisionSizes& sizes) {
  const Sides2 one{rule.tile, rule.tile};
  const bool tiled = rule.crop_to_patches && rule.max_tiles > 1;
  const Sides2 grid = tiled ? best_grid(rule, of.height, of.width) : Sides2{1, 1};
  const Sides2 to{grid.first * rule.tile, grid.second * rule.tile};
  steps.cut_main(steps.resize(of.from, of.all(), to), grid.first * grid.second, grid);
  if (sizes.rows > 1) steps.cut(steps.resize(of.from, of.all(), one), 1);
  sizes.tokens = sizes.rows * rule.tokens;
}

// ---- Gemma3 and PaliGemma

// pan_and_scan(): crops down and across; 0, 0 for none.
Sides2 pan_grid(const VisionRule& rule, int height, int width) {
  const int longer = std::max(height, width), shorter = std::min(height, width);
  const double ratio = quotient(longer, shorter);
  if (!rule.pan_and_scan || ratio < rule.pan_min_ratio) return {0, 0};
  const int64_t fitting = longer / rule.pan_min_crop;
  const int64_t wished = std::min(fitting, whole(std::floor(ratio + 0.5)));
  const int64_t count = std::min<int64_t>(rule.pan_max_crops, std::max<int64_t>(2, wished));
  const int64_t side = (longer + count - 1) / count;
  if (std::min<int64_t>(side, shorter) < rule.pan_min_crop) return {0, 0};
  if (side * (count - 1) >= longer) {
    refuse("Pan and scan must leave something for the last of " + std::to_string(count) +
           " crops. Found: " + sides_text(width, height) + ". Set a larger pan_min_crop.");
  }
  return width >= height ? Sides2{1, count} : Sides2{count, 1};
}

void plan_whole(const VisionRule& rule, const Given& of, Steps& steps, VisionSizes& sizes) {
  const auto [from, width, height] = of;
  const Sides2 grid =
      rule.family == VisionFamily::kGemma3 ? pan_grid(rule, height, width) : Sides2{0, 0};
  steps.cut_main(steps.resize(from, of.all(), rule.size), 1, grid);
  for (int64_t i = 0; i < grid.first * grid.second; ++i) {
    const auto high = static_cast<int>((height + grid.first - 1) / grid.first);
    const auto wide = static_cast<int>((width + grid.second - 1) / grid.second);
    Rect crop{grid.second > 1 ? static_cast<int>(i) * wide : 0,
              grid.first > 1 ? static_cast<int>(i) * high : 0, wide, high};
    crop.width = std::min(crop.width, width - crop.x);
    crop.height = std::min(crop.height, height - crop.y);
    steps.cut(steps.resize(from, crop, rule.size), 1);
  }
  sizes.tokens = sizes.rows * rule.tokens;
}

}  // namespace

std::pair<int, int> VisionRule::unit() const {
  if (has_patches()) return {patch, patch};
  if (family >= VisionFamily::kGemma3) return size;
  return {tile, tile};
}

std::vector<size_t> VisionRule::row_shape(DType dtype) const {
  const auto [height, width] = unit();
  const auto high = static_cast<size_t>(height), wide = static_cast<size_t>(width);
  if (!has_patches()) return {3, high, wide};
  const bool repeats = family == VisionFamily::kQwen2Vl && dtype != DType::kUint8;
  return {3 * high * wide * (repeats ? static_cast<size_t>(temporal) : 1)};
}

size_t VisionRule::row_bytes(DType dtype) const {
  size_t bytes = dtype_size(dtype);
  for (const size_t side : row_shape(dtype)) bytes *= side;
  return bytes;
}

VisionSizes plan(const VisionRule& rule, int width, int height, int pictures_in_sample) {
  if (width < 1 || height < 1 || pictures_in_sample < 1) {
    refuse("A picture's sides and the pictures of its sample must be at least 1. Found: " +
           sides_text(width, height) + ", " + std::to_string(pictures_in_sample) + " pictures.");
  }
  VisionSizes sizes;
  sizes.source_height = height;
  sizes.source_width = width;
  Steps steps(sizes, rule.filter);
  const Given of = steps.first(rule, width, height);
  switch (rule.family) {
    case VisionFamily::kQwen2Vl:
      plan_qwen(rule, of, steps, sizes);
      break;
    case VisionFamily::kSiglip2:
      plan_siglip2(rule, of, steps, sizes);
      break;
    case VisionFamily::kIdefics3:
      plan_idefics3(rule, of, steps, sizes);
      break;
    case VisionFamily::kLlavaOneVision:
      plan_llava(rule, of, pictures_in_sample, steps, sizes);
      break;
    case VisionFamily::kInternVl:
      plan_internvl(rule, of, steps, sizes);
      break;
    case VisionFamily::kGemma3:
    case VisionFamily::kPaliGemma:
      plan_whole(rule, of, steps, sizes);
      break;
  }
  return sizes;
}

void plan_many(const VisionRule& rule, std::span<const int32_t> sizes, const int32_t* pictures,
               bool strict, const VisionColumns& columns) {
  for (size_t i = 0; i < sizes.size() / 2; ++i) {
    VisionSizes found;
    try {
      found = plan(rule, sizes[2 * i], sizes[2 * i + 1], pictures == nullptr ? 1 : pictures[i]);
    } catch (const Error& error) {
      if (strict) throw Error(error.kind(), "Picture " + std::to_string(i) + ": " + error.what());
      found = {};
    }
    columns.rows[i] = found.rows;
    columns.grids[2 * i] = found.grid_height;
    columns.grids[2 * i + 1] = found.grid_width;
    columns.tokens[i] = found.tokens;
  }
}

std::vector<uint8_t> canvas_colour(const VisionRule& rule) {
  std::vector<uint8_t> pixel(3);
  for (size_t c = 0; c < 3; ++c) pixel[c] = static_cast<uint8_t>(whole(rule.mean[c] * 255));
  return pixel;
}

}  // namespace fastload
