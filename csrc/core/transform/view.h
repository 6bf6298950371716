// Which pixels of a picture a sample shows: crop, resize, window, flip. Drawn before decoding, so
// that only those pixels are decoded.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/geometry.h"
#include "base/philox.h"

namespace fastload {

enum class Filter : uint8_t { kBilinear = 0, kBicubic = 1 };

// The picture's rectangle `crop` is resized (antialiased) to resized_width x resized_height, and
// `window` (in resized pixels) of that is the sample, mirrored if `flip`. A window that reaches
// over the resized picture's border is zero there (torchvision's CenterCrop pads so).
struct View {
  Rect crop;
  int resized_width = 0;
  int resized_height = 0;
  Rect window;
  bool flip = false;
  Filter filter = Filter::kBilinear;  // that resizes, antialiased
};

struct GeometryOperation;  // transform/geometry/operation.h

// The geometric part of the transforms: steps of transform/geometry/registry.h, in order. One
// filter does for all of them, because one of them resizes; random_filter draws another.
class GeometrySpec {
 public:
  // One more step. Throws Error(kValue) for a name that the registry does not have, or another
  // count of numbers than its parameters.
  void add(std::string_view name, std::vector<double> numbers);

  struct Step {
    const GeometryOperation* operation;
    std::vector<double> numbers;
  };
  [[nodiscard]] const std::vector<Step>& steps() const { return steps_; }

  Filter filter = Filter::kBilinear;

 private:
  std::vector<Step> steps_;
};

// Draws the sample's view of a width x height picture: each step narrows what the steps before it
// left; a flip is noted, and done last. What each draws is said in its file.
// Throws Error(kValue) for an empty picture and for one smaller than a random window, Error(kLimit)
// where a side would exceed 2^24 pixels.
View draw_view(const GeometrySpec& spec, int width, int height, const SampleRng& rng);

// The rectangle of the picture that the view needs: crop, cut to the support of the window's
// pixels. Throws Error(kValue) for sides outside [1, 2^24] and for a window that misses the resized
// picture.
Rect source_rect(const View& view, Filter filter);

}  // namespace fastload
