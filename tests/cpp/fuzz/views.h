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
  spec.kind = static_cast<GeometrySpec::Kind>(in.in(0, 3));
  spec.out_height = in.in(1, kMaxSide);
  spec.out_width = in.in(1, kMaxSide);
  spec.max_size = kMaxSide;
  // A window of any size would be the whole picture without these.
  spec.center_height = in.in(1, kMaxSide);
  spec.center_width = in.in(1, kMaxSide);
  spec.flip_probability = 0.5;
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
  view.flip = in.coin();
  return view;
}

}  // namespace fastload::fuzz
