// Crops, sizes and flips, drawn before decoding.
#include "transform/view.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"

namespace fastload {
namespace {

constexpr int kTries = 10;
constexpr int64_t kMaxSide = 1 << 24;

// Python's int(round(x)): halves to even, which is the default rounding mode.
int round_even(double x) { return static_cast<int>(std::nearbyint(x)); }

double uniform(uint32_t high, uint32_t low, double from, double to) {
  return from + uniform_double(high, low) * (to - from);
}

Rect central_fallback(const GeometrySpec& spec, int width, int height) {
  const double ratio = static_cast<double>(width) / height;
  int w = width;
  int h = height;
  if (ratio < spec.ratio_min) {
    h = std::clamp(round_even(w / spec.ratio_min), 1, height);
  } else if (ratio > spec.ratio_max) {
    w = std::clamp(round_even(h * spec.ratio_max), 1, width);
  }
  return {(width - w) / 2, (height - h) / 2, w, h};
}

// torchvision.transforms.RandomResizedCrop.get_params.
Rect random_crop(const GeometrySpec& spec, int width, int height, const SampleRng& rng) {
  const double area = static_cast<double>(width) * height;
  const double log_min = std::log(spec.ratio_min);
  const double log_max = std::log(spec.ratio_max);
  for (uint32_t i = 0; i < kTries; ++i) {
    const PhiloxWords a = rng.words(DrawOp::kCrop, 2 * i);
    const double target = area * uniform(a[0], a[1], spec.scale_min, spec.scale_max);
    const double ratio = std::exp(uniform(a[2], a[3], log_min, log_max));
    const double w = std::nearbyint(std::sqrt(target * ratio));
    const double h = std::nearbyint(std::sqrt(target / ratio));
    if (!(w > 0 && w <= width && h > 0 && h <= height)) continue;
    const PhiloxWords b = rng.words(DrawOp::kCrop, 2 * i + 1);
    const int crop_w = static_cast<int>(w);
    const int crop_h = static_cast<int>(h);
    const auto y = uniform_below(b[0], b[1], static_cast<uint32_t>(height - crop_h + 1));
    const auto x = uniform_below(b[2], b[3], static_cast<uint32_t>(width - crop_w + 1));
    return {static_cast<int>(x), static_cast<int>(y), crop_w, crop_h};
  }
  return central_fallback(spec, width, height);
}

int checked_side(double value) {
  if (value <= static_cast<double>(kMaxSide)) return std::max(static_cast<int>(value), 1);
  throw Error(ErrorKind::kLimit, "A resized side must be at most 16777216 pixels. Found: " +
                                     std::to_string(value) + ". Give Resize a max_size.");
}

// torchvision's _compute_resized_output_size for one size: the shorter side gets it, the longer one
// is truncated. A side that torchvision would round down to 0 pixels is 1 here.
void resize_shorter(const GeometrySpec& spec, int width, int height, View& view) {
  const double shorter = std::min(width, height);
  const double longer = std::max(width, height);
  double new_short = spec.out_width;
  double new_long = std::trunc(new_short * longer / shorter);
  if (spec.max_size > 0 && new_long > spec.max_size) {
    new_short = std::trunc(spec.max_size * new_short / new_long);
    new_long = spec.max_size;
  }
  view.resized_width = checked_side(width <= height ? new_short : new_long);
  view.resized_height = checked_side(width <= height ? new_long : new_short);
}

// torchvision's center_crop along one axis: where the window begins.
int center_offset(int size, int crop) {
  return crop > size ? -((crop - size) / 2) : round_even((size - crop) / 2.0);
}

// torchvision's RandomCrop.get_params.
Rect random_window(const GeometrySpec& spec, const View& view, const SampleRng& rng) {
  const int free_x = view.resized_width - spec.center_width;
  const int free_y = view.resized_height - spec.center_height;
  if (free_x < 0 || free_y < 0) {
    throw Error(ErrorKind::kValue, "RandomCrop of " + std::to_string(spec.center_width) + " x " +
                                       std::to_string(spec.center_height) +
                                       " pixels is larger than the picture, which has " +
                                       std::to_string(view.resized_width) + " x " +
                                       std::to_string(view.resized_height) +
                                       " there. Resize it to more first.");
  }
  const PhiloxWords a = rng.words(DrawOp::kCrop, 2 * kTries);
  const auto y = uniform_below(a[0], a[1], static_cast<uint32_t>(free_y + 1));
  const auto x = uniform_below(a[2], a[3], static_cast<uint32_t>(free_x + 1));
  return {static_cast<int>(x), static_cast<int>(y), spec.center_width, spec.center_height};
}

Rect window_of(const GeometrySpec& spec, const View& view, const SampleRng& rng) {
  if (spec.center_width == 0) return {0, 0, view.resized_width, view.resized_height};
  if (spec.random_window) return random_window(spec, view, rng);
  return {center_offset(view.resized_width, spec.center_width),
          center_offset(view.resized_height, spec.center_height), spec.center_width,
          spec.center_height};
}

// The place in the unmirrored picture of what was cut from the mirrored one.
void mirror(Rect& rect, int width) { rect.x = width - rect.x - rect.width; }

}  // namespace

View draw_view(const GeometrySpec& spec, int width, int height, const SampleRng& rng) {
  if (width < 1 || height < 1) {
    throw Error(ErrorKind::kValue,
                "A picture must have at least 1 x 1 pixels. Found: " + std::to_string(width) +
                    " x " + std::to_string(height) + ".");
  }
  View view;
  view.crop = {0, 0, width, height};
  view.resized_width = spec.out_width;
  view.resized_height = spec.out_height;
  switch (spec.kind) {
    case GeometrySpec::Kind::kNone:
      view.resized_width = width;
      view.resized_height = height;
      break;
    case GeometrySpec::Kind::kRandomResizedCrop:
      view.crop = random_crop(spec, width, height, rng);
      break;
    case GeometrySpec::Kind::kResizeShorter:
      resize_shorter(spec, width, height, view);
      break;
    case GeometrySpec::Kind::kResizeExact:
      break;
  }
  view.window = window_of(spec, view, rng);
  if (spec.flip_probability > 0) {
    const PhiloxWords words = rng.words(DrawOp::kFlip, 0);
    view.flip = uniform_double(words[0], words[1]) < spec.flip_probability;
  }
  if (view.flip && spec.flip_place != FlipPlace::kLast) mirror(view.window, view.resized_width);
  if (view.flip && spec.flip_place == FlipPlace::kBeforeCrop) mirror(view.crop, width);
  return view;
}

}  // namespace fastload
