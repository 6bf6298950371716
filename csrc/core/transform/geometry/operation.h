// What a step of the geometry is: a row of the registry and a function that narrows a view.
#pragma once

#include <span>

#include "base/philox.h"
#include "transform/view.h"

namespace fastload {

// A row of the registry. `apply` gets what the steps before made of the picture: a step that cuts
// from a mirrored picture cuts from the mirrored place, because flips are done last.
struct GeometryOperation {
  const char* name;
  std::span<const char* const>
      parameters;  // what `numbers` are; their ranges are checked in Python
  void (*apply)(std::span<const double> numbers, const SampleRng& rng, View& view) = nullptr;
  bool many = false;  // the last parameter may be there several times
  // In place of `apply`: draws from the sample's boxes, in pixels of the picture.
  void (*draw)(std::span<const double> numbers, const SampleRng& rng,
               std::span<const BoxXyxy> boxes, View& view) = nullptr;
  bool still = false;  // it draws nothing: of pictures of one size the same for all samples
};

// Python's int(round(x)): halves to even.
int round_even(double x);

// Whether what the steps before have left is mirrored left to right, or top to bottom: by a flip,
// and by half a turn, which is both.
inline bool mirrored_across(const View& view) { return view.flip != (view.quarter == 2); }
inline bool mirrored_down(const View& view) { return view.quarter == 2; }

// The place in the unmirrored picture of what was cut from the mirrored one.
inline void mirror(const View& view, Rect& rect, int width, int height) {
  if (mirrored_across(view)) rect.x = width - rect.x - rect.width;
  if (mirrored_down(view)) rect.y = height - rect.y - rect.height;
}

// What two rectangles have in common; without an area: a pixel of the first, and no sides.
Rect common(const Rect& first, const Rect& second);

// Rectangles and sides below are of what the steps before have left, mirrored as that is.

// What a window shows of a picture that was not resized is its crop from here on: what looks at the
// crop's sides, and what resizes, calls this first. Throws Error(kValue) where a window shows a
// part of a resized picture, which cannot be resized again, and where a border is no fill.
void settle(View& view);

// That alone is left, before anything is resized.
void crop_to(View& view, Rect rect);

// It is resized to width x height and shown whole.
void resize_to(View& view, int width, int height);

// That alone is shown.
void show_window(View& view, Rect rect);

// So many pixels of fill are added on each side.
void pad_by(View& view, int left, int top, int right, int bottom);

// The same of what the border mirrors or repeats. Throws Error(kValue) where there is a border.
void pad_by(View& view, int left, int top, int right, int bottom, Border border);

// Boxes are clipped to what is left.
void clip_to_view(View& view);

// A side, drawn or computed, as an int of at least 1. Throws Error(kLimit) above 2^24.
int checked_side(double value);

// Resized by the shorter side; max_size 0: no bound.
void resize_shorter(View& view, double size, double max_size);

// Uniform in [from, to) of two words.
inline double uniform_between(uint32_t high, uint32_t low, double from, double to) {
  return from + uniform_double(high, low) * (to - from);
}

// The same as torchvision has it of torch.rand(): in float32.
inline float float_between(uint32_t high, uint32_t low, double from, double to) {
  const auto drawn = static_cast<float>(uniform_double(high, low));
  return static_cast<float>(from) + drawn * static_cast<float>(to - from);
}

}  // namespace fastload
