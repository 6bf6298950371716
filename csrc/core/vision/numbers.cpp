#include "vision/numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/error.h"

namespace fastload {
namespace {

constexpr std::array<const char*, 7> kFamilies{"qwen2_vl", "siglip2", "idefics3", "llava_onevision",
                                               "internvl", "gemma3",  "paligemma"};
constexpr std::array<const char*, 3> kFilters{"bilinear", "bicubic", "lanczos"};
constexpr std::array<double, 3> kClipMean{0.48145466, 0.4578275, 0.40821073};
constexpr std::array<double, 3> kClipStd{0.26862954, 0.26130258, 0.27577711};

// Families that use a number, a bit for each.
constexpr unsigned in(std::initializer_list<VisionFamily> families) {
  unsigned bits = 0;
  for (const VisionFamily family : families) bits |= 1U << static_cast<unsigned>(family);
  return bits;
}
using enum VisionFamily;
constexpr unsigned kPatches = in({kQwen2Vl, kSiglip2});
constexpr unsigned kTiles = in({kIdefics3, kLlavaOneVision, kInternVl});
constexpr unsigned kWhole = in({kGemma3, kPaliGemma});
constexpr unsigned kEvery = kPatches | kTiles | kWhole;

constexpr double kMostPixels = 1e12;
constexpr double kMostSide = 65500;  // JPEG's own limit on a side
constexpr size_t kMostPinpoints = 1000;

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::kValue, what); }

std::string number_text(double value) {
  const bool is_whole = value == std::floor(value) && std::abs(value) < 1e15;
  return is_whole ? std::to_string(static_cast<int64_t>(value)) : std::to_string(value);
}

std::string values_text(const VisionNumber& number) {
  if (!number.name.empty()) return number.name;
  std::string text;
  for (const double value : number.values) text += (text.empty() ? "" : ", ") + number_text(value);
  return text.empty() ? "nothing" : text;
}

// What a number is: how many values, whether whole, and between which.
struct Range {
  size_t count = 1;  // 0: pairs, any number
  bool whole = true;
  double least = 1;
  double most = kMostSide;
};

struct Parameter {
  const char* name;
  unsigned families;
  Range range;
  void (*set)(VisionRule&, const VisionNumber&);
};

template <auto Member>
void set_one(VisionRule& rule, const VisionNumber& number) {
  auto& member = rule.*Member;
  member = static_cast<std::remove_reference_t<decltype(member)>>(number.values[0]);
}

template <auto Member>
void set_three(VisionRule& rule, const VisionNumber& number) {
  std::copy_n(number.values.begin(), 3, (rule.*Member).begin());
}

void set_size(VisionRule& rule, const VisionNumber& number) {
  rule.size = {static_cast<int>(number.values[0]), static_cast<int>(number.values[1])};
}

void set_pinpoints(VisionRule& rule, const VisionNumber& number) {
  rule.pinpoints.clear();
  for (size_t i = 0; i + 1 < number.values.size(); i += 2) {
    const auto high = static_cast<int>(number.values[i]);
    rule.pinpoints.emplace_back(high, static_cast<int>(number.values[i + 1]));
  }
}

constexpr Range kPixels{1, true, 1, kMostPixels};
constexpr Range kFlag{1, true, 0, 1};
constexpr Range kColour{3, false, -1e6, 1e6};

constexpr Parameter kParameters[] = {
    {"patch", kPatches, {1, true, 1, 256}, set_one<&VisionRule::patch>},
    {"merge", in({kQwen2Vl}), {1, true, 1, 16}, set_one<&VisionRule::merge>},
    {"temporal", in({kQwen2Vl}), {1, true, 1, 16}, set_one<&VisionRule::temporal>},
    {"min_pixels", in({kQwen2Vl}), kPixels, set_one<&VisionRule::min_pixels>},
    {"max_pixels", in({kQwen2Vl}), kPixels, set_one<&VisionRule::max_pixels>},
    {"max_patches", in({kSiglip2}), {1, true, 1, 1e6}, set_one<&VisionRule::max_patches>},
    {"longest_edge", in({kIdefics3}), {}, set_one<&VisionRule::longest_edge>},
    {"tile", kTiles, {1, true, 1, 8192}, set_one<&VisionRule::tile>},
    {"pinpoints", in({kLlavaOneVision}), {0, true, 1, kMostSide}, set_pinpoints},
    {"min_tiles", in({kInternVl}), {1, true, 1, 1000}, set_one<&VisionRule::min_tiles>},
    {"max_tiles",
     in({kInternVl, kLlavaOneVision}),
     {1, true, 1, 1000},
     set_one<&VisionRule::max_tiles>},
    {"crop_to_patches", in({kInternVl, kIdefics3}), kFlag, set_one<&VisionRule::crop_to_patches>},
    {"tokens", kTiles | kWhole, {1, true, 1, 1e6}, set_one<&VisionRule::tokens>},
    {"pan_and_scan", in({kGemma3}), kFlag, set_one<&VisionRule::pan_and_scan>},
    {"pan_min_crop", in({kGemma3}), {}, set_one<&VisionRule::pan_min_crop>},
    {"pan_max_crops", in({kGemma3}), {1, true, 1, 1000}, set_one<&VisionRule::pan_max_crops>},
    {"pan_min_ratio", in({kGemma3}), {1, false, 0, 1e6}, set_one<&VisionRule::pan_min_ratio>},
    {"size", kWhole, {2, true, 1, 8192}, set_size},
    {"mean", kEvery, kColour, set_three<&VisionRule::mean>},
    {"std", kEvery, kColour, set_three<&VisionRule::std>},
    {"rescale", kEvery, {1, false, 0, 1e6}, set_one<&VisionRule::rescale>},
    {"first_max_pixels",
     kEvery,
     {1, true, 0, kMostPixels},
     set_one<&VisionRule::first_max_pixels>},
};

void check(const std::string& name, const Range& range, const VisionNumber& number) {
  const std::vector<double>& values = number.values;
  bool fits = number.name.empty();
  if (range.count > 0) {
    fits = fits && values.size() == range.count;
  } else {
    fits = fits && !values.empty() && values.size() % 2 == 0 && values.size() / 2 <= kMostPinpoints;
  }
  for (const double value : values) {
    fits = fits && value >= range.least && value <= range.most;
    fits = fits && (!range.whole || value == std::floor(value));
  }
  if (fits) return;
  const std::string many = range.count == 0   ? "1 to 1000 pairs of "
                           : range.count == 1 ? "one "
                                              : std::to_string(range.count) + " ";
  refuse("Vision rules' " + name + " must be " + many + (range.whole ? "whole number" : "number") +
         (range.count == 1 ? "" : "s") + " in [" + number_text(range.least) + ", " +
         number_text(range.most) + "]. Found: " + values_text(number) + ".");
}

void set_filter(VisionRule& rule, const VisionNumber& number) {
  std::string legal;
  for (size_t i = 0; i < kFilters.size(); ++i) {
    if (number.name == kFilters[i]) {
      rule.filter = static_cast<Filter>(i);
      return;
    }
    legal += (i == 0 ? "" : ", ") + std::string(kFilters[i]);
  }
  refuse("Vision rules' filter must be one of " + legal + ". Found: " + values_text(number) + ".");
}

void set(VisionRule& rule, const std::string& name, const VisionNumber& number) {
  if (name == "filter") return set_filter(rule, number);
  const unsigned family = 1U << static_cast<unsigned>(rule.family);
  std::string used;
  for (const Parameter& one : kParameters) {
    if ((one.families & family) == 0) continue;
    if (name == one.name) {
      check(name, one.range, number);
      return one.set(rule, number);
    }
    used += std::string(one.name) + ", ";
  }
  refuse("The vision rule " + std::string(kFamilies[static_cast<size_t>(rule.family)]) +
         " has the numbers " + used + "filter. Found: " + name + ".");
}

// What the family's class of transformers has.
VisionRule defaults(VisionFamily family) {
  VisionRule rule;
  rule.family = family;
  const bool clip = family == kQwen2Vl || family == kLlavaOneVision || family == kInternVl;
  if (clip) {
    rule.mean = kClipMean;
    rule.std = kClipStd;
  }
  if (family == kSiglip2) rule.patch = 16;
  if (family == kSiglip2 || family == kGemma3) rule.filter = Filter::kBilinear;
  if (family == kIdefics3) {
    rule.filter = Filter::kLanczos;
    rule.tile = 364;
    rule.tokens = 169;
  }
  if (family == kInternVl) rule.crop_to_patches = false;
  if (family == kLlavaOneVision) {
    rule.max_tiles = 9;
    rule.tokens = 729;
    for (int high = 1; high <= 6; ++high) {
      for (int wide = 1; wide <= 6; ++wide) rule.pinpoints.emplace_back(384 * high, 384 * wide);
    }
  }
  return rule;
}

// What numbers must be beside each other.
void check_together(const VisionRule& rule) {
  if (rule.family == kQwen2Vl && rule.min_pixels > rule.max_pixels) {
    refuse("Vision rules' min_pixels must be at most max_pixels. Found: " +
           std::to_string(rule.min_pixels) + " and " + std::to_string(rule.max_pixels) + ".");
  }
  if (rule.family == kInternVl && rule.min_tiles > rule.max_tiles) {
    refuse("Vision rules' min_tiles must be at most max_tiles. Found: " +
           std::to_string(rule.min_tiles) + " and " + std::to_string(rule.max_tiles) + ".");
  }
  if (rule.family == kLlavaOneVision) {
    for (const auto& [high, wide] : rule.pinpoints) {
      if (high % rule.tile == 0 && wide % rule.tile == 0) continue;
      refuse("Vision rules' pinpoints must be whole tiles of " + std::to_string(rule.tile) +
             " pixels. Found: " + std::to_string(high) + ", " + std::to_string(wide) + ".");
    }
    for (const double mean : rule.mean) {  // the canvas has its colour
      if (mean >= 0 && mean <= 1) continue;
      refuse("The mean of llava_onevision must be in [0, 1]. Found: " + number_text(mean) + ".");
    }
  }
  for (const double std : rule.std) {
    if (static_cast<float>(std) != 0) continue;
    refuse("Vision rules' std must not be 0. Found: " + number_text(std) + ".");
  }
}

}  // namespace

VisionRule vision_rule(std::string_view family,
                       std::span<const std::pair<std::string, VisionNumber>> numbers) {
  const auto found = std::find(kFamilies.begin(), kFamilies.end(), family);
  if (found == kFamilies.end()) {
    std::string legal;
    for (const char* one : kFamilies) legal += (legal.empty() ? "" : ", ") + std::string(one);
    refuse("A vision rule's family must be one of " + legal + ". Found: " + std::string(family) +
           ".");
  }
  VisionRule rule = defaults(static_cast<VisionFamily>(found - kFamilies.begin()));
  for (const auto& [name, number] : numbers) set(rule, name, number);
  check_together(rule);
  return rule;
}

}  // namespace fastload
