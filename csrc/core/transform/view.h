// Which pixels of a picture a sample shows: crop, resize, window, flip. Drawn before decoding, so
// that only those pixels are decoded.
#pragma once

#include <cstdint>

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
};

// Where in the order the flip was asked for.
enum class FlipPlace : uint8_t {
  kLast,          // after all else
  kBeforeWindow,  // before CenterCrop or RandomCrop
  kBeforeCrop,    // before RandomResizedCrop, and so before the window, too
};

// The geometric part of the transforms, in their fixed order:
//   [RandomResizedCrop | Resize] -> [CenterCrop | RandomCrop] -> [RandomHorizontalFlip]
// A flip that comes earlier is done last, too: what was to be cut from the mirrored picture is cut
// from the mirrored place.
struct GeometrySpec {
  enum class Kind : uint8_t {
    kNone,               // keep the picture
    kRandomResizedCrop,  // out_height, out_width, scale, ratio
    kResizeShorter,      // shorter side to out_width, at most max_size on the longer (0: no bound)
    kResizeExact,        // out_height x out_width
  };
  Kind kind = Kind::kNone;
  int out_height = 0;
  int out_width = 0;
  int max_size = 0;
  double scale_min = 0.08, scale_max = 1.0;         // share of the picture's area
  double ratio_min = 3.0 / 4, ratio_max = 4.0 / 3;  // width over height
  Filter filter = Filter::kBilinear;
  int center_height = 0;  // CenterCrop or RandomCrop; 0: none
  int center_width = 0;
  bool random_window = false;  // RandomCrop: the window lies anywhere inside the resized picture
  double flip_probability = 0.0;
  FlipPlace flip_place = FlipPlace::kLast;
};

// Draws the sample's view of a width x height picture.
//   Crop: torchvision's RandomResizedCrop.get_params, ten tries, then the central fallback. Try i
//   draws
//     from Philox block (kCrop, 2i): words 0, 1 the area, uniform in scale; words 2, 3 the
//     logarithm of the ratio, uniform; and, if the crop fits, from (kCrop, 2i + 1): words 0, 1 the
//     top row, words 2, 3 the left column, uniform_below. (uniform_double of two words where
//     "uniform" is said.)
//   RandomCrop: torchvision's RandomCrop.get_params: Philox block (kCrop, 20): words 0, 1 the top
//     row, words 2, 3 the left column, uniform_below.
//   Flip: uniform_double of words 0, 1 of block (kFlip, 0), flipped when it is below the
//   probability. Sizes: torchvision's _compute_resized_output_size and center_crop, rounding as
//   Python does; but a
//     side that would become 0 pixels is 1.
// Throws Error(kValue) for an empty picture and for one smaller than a random window, Error(kLimit)
// where a side would exceed 2^24 pixels.
View draw_view(const GeometrySpec& spec, int width, int height, const SampleRng& rng);

// The rectangle of the picture that the view needs: crop, cut to the support of the window's
// pixels. Throws Error(kValue) for sides outside [1, 2^24] and for a window that misses the resized
// picture.
Rect source_rect(const View& view, Filter filter);

}  // namespace fastload
