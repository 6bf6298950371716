// Views that fuzz targets cut.
#pragma once

#include <algorithm>

#include "decode/decode.h"
#include "input.h"
#include "transform/view.h"

namespace fastload::fuzz {

constexpr int kMaxSide = 96;  // of the resized picture and the window

// As a transform draws it.
inline View drawn_view(Input& in, const ImageInfo& info) {
  GeometrySpec spec;
  const int kind = in.in(0, 3);
  const auto height = static_cast<double>(in.in(1, kMaxSide));
  const auto width = static_cast<double>(in.in(1, kMaxSide));
  if (kind == 1) spec.add("random_resized_crop", {height, width, 0.08, 1.0, 3.0 / 4, 4.0 / 3});
  if (kind == 2) spec.add("resize_shorter", {width, kMaxSide});
  if (kind == 3) spec.add("resize_exact", {height, width});
  // A window of any size would be the whole picture without these.
  const auto window_height = static_cast<double>(in.in(1, kMaxSide));
  spec.add("center_crop", {window_height, static_cast<double>(in.in(1, kMaxSide))});
  spec.add("horizontal_flip", {0.5});
  spec.add("quarter_turn", {0, 1, 2, 3});
  const auto id = static_cast<uint64_t>(in.u16());
  return draw_view(spec, static_cast<int>(info.width), static_cast<int>(info.height),
                   {epoch_key(1, 0), id, 0});
}

// Any crop and any window that touches the resized picture.
inline View free_view(Input& in, const ImageInfo& info) {
  View view;
  view.crop = take_roi(in, static_cast<int>(info.width), static_cast<int>(info.height));
  const bool keep = view.crop.width <= kMaxSide && view.crop.height <= kMaxSide && in.coin();
  view.resized_width = keep ? view.crop.width : in.in(1, kMaxSide);
  view.resized_height = keep ? view.crop.height : in.in(1, kMaxSide);
  view.window.x = in.in(-9, view.resized_width - 1);
  view.window.y = in.in(-9, view.resized_height - 1);
  view.window.width = in.in(std::max(1, 1 - view.window.x), kMaxSide + 9);
  view.window.height = in.in(std::max(1, 1 - view.window.y), kMaxSide + 9);
  const uint8_t turned = in.u8();
  view.flip = turned % 2 != 0;
  view.quarter = turned / 2 % 4;
  return view;
}

}  // namespace fastload::fuzz
