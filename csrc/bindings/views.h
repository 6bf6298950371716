// Views, and the names of filters and dtypes, as Python has them.
#pragma once

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "transform/pixels/motion.h"
#include "transform/store.h"
#include "transform/view.h"

namespace fastload::bindings {

using RectTuple = std::tuple<int, int, int, int>;                                // x, y, w, h
using ViewTuple = std::tuple<RectTuple, std::tuple<int, int>, RectTuple, bool>;  // as View

using MotionTuple = std::tuple<std::array<double, 8>, bool>;  // as Motion

inline constexpr std::array<const char*, 3> kFilters{"bilinear", "bicubic", "lanczos"};
inline constexpr std::array<const char*, 6> kDTypes{"uint8",   "float16", "bfloat16",
                                                    "float32", "uint16",  "int32"};

template <typename Enum, size_t N>
Enum by_name(const char* what, const std::array<const char*, N>& names, const std::string& name) {
  std::string legal;
  for (size_t i = 0; i < N; ++i) {
    if (name == names[i]) return static_cast<Enum>(i);
    legal += (i == 0 ? "" : ", ") + std::string(names[i]);
  }
  throw Error(ErrorKind::kValue,
              std::string(what) + " must be one of " + legal + ". Found: " + name + ".");
}

inline RectTuple to_tuple(const Rect& r) { return {r.x, r.y, r.width, r.height}; }
inline Rect to_rect(const RectTuple& t) {
  return {std::get<0>(t), std::get<1>(t), std::get<2>(t), std::get<3>(t)};
}

inline View to_view(const ViewTuple& t) {
  const auto& [crop, resized, window, flip] = t;
  View view;
  view.crop = to_rect(crop);
  view.resized_width = std::get<0>(resized);
  view.resized_height = std::get<1>(resized);
  view.window = to_rect(window);
  view.flip = flip;
  return view;
}

inline std::vector<Motion> to_motions(const std::vector<MotionTuple>& tuples) {
  std::vector<Motion> motions;
  for (const auto& [a, perspective] : tuples) motions.push_back({a, perspective});
  return motions;
}

}  // namespace fastload::bindings
