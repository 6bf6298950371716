// Which pixels of a picture a sample shows: crop, resize, window, flip. Drawn before decoding, so
// that only those pixels are decoded.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/geometry.h"
#include "base/philox.h"

namespace fastload {

enum class Filter : uint8_t { kBilinear = 0, kBicubic = 1, kLanczos = 2 };

// What is around a picture: fill, or its own pixels, as numpy.pad has them by these names.
enum class Border : uint8_t { kFill = 0, kEdge = 1, kReflect = 2, kSymmetric = 3 };

// Corners of a box, in pixels.
struct BoxXyxy {
  double left = 0, top = 0, right = 0, bottom = 0;
};

// Width and height, in pixels.
struct Sides {
  int width = 0;
  int height = 0;
};

// Of what a view is drawn.
struct DrawnOf {
  int width = 0;
  int height = 0;
  std::span<const BoxXyxy> boxes = {};  // in pixels of the picture; where the spec needs boxes
};

// The picture's rectangle `crop` is resized (antialiased) to resized_width x resized_height, and
// `window` (in resized pixels) of that is the sample, mirrored if `flip`, then turned. A crop may
// reach over the picture's border, and a window over the resized picture's: fill is there.
struct View {
  static constexpr Rect kAll{0, 0, -1, -1};
  static constexpr double kNoBound = std::numeric_limits<double>::infinity();

  Rect crop;
  int resized_width = 0;
  int resized_height = 0;
  Rect window;
  bool flip = false;
  Filter filter = Filter::kBilinear;  // that resizes, antialiased
  bool across_first = false;          // rows before columns, whatever Pillow begins with

  Rect seen = kAll;   // of the picture: what may be shown; the rest is fill. Without an area:
                      // nothing, and x, y is some pixel of the picture
  Rect shown = kAll;  // likewise of the resized picture
  // Left, top, right, bottom of what crops and pads have left, in resized pixels: where boxes are
  // clipped to.
  std::array<double, 4> area{-kNoBound, -kNoBound, kNoBound, kNoBound};
  // Boxes (of pixels of the picture) whose centre is not strictly inside become 0 0 0 0: see
  // centre_stays().
  std::optional<Rect> centres = {};
  // The area, in pixels of the picture, that boxes were clipped to when their centres counted.
  std::array<double, 4> centred{-kNoBound, -kNoBound, kNoBound, kNoBound};
  uint8_t quarter = 0;  // quarter turns counter-clockwise, of the mirrored window
  // What is beside `shown`; without kFill that is what the border is made of, and all of it is
  // within the resized picture.
  Border border = Border::kFill;

  // What boxes were like where objects were dropped for them, before the steps behind: the view
  // then, and how large they had to be.
  struct Judged {
    Rect crop;
    int resized_width = 0, resized_height = 0;
    Rect window;
    std::array<double, 4> area{};
    bool centres = false;  // whether those count whose centres are not inside
    double min_size = 0, min_area = 0;
    bool operator==(const Judged&) const = default;
  };
  static constexpr size_t kMostJudged = 2;
  std::array<Judged, kMostJudged> judged{};
  uint8_t judgements = 0;  // of `judged`

  bool operator==(const View&) const = default;

  // Of what comes out: the window's, which quarter turns exchange.
  [[nodiscard]] Sides made() const {
    return quarter % 2 == 0 ? Sides{window.width, window.height}
                            : Sides{window.height, window.width};
  }
  // Turns a point of the mirrored window.
  void turn(double& x, double& y) const {
    for (int i = 0, width = window.width, height = window.height; i < quarter; ++i) {
      const double across = x;
      x = y;
      y = width - across;
      std::swap(width, height);
    }
  }
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
    uint16_t skip = 0;  // blocks of draws of the same operation before it
  };
  [[nodiscard]] const std::vector<Step>& steps() const { return steps_; }
  // Whether a step draws from the sample's boxes.
  [[nodiscard]] bool needs_boxes() const;
  // Whether no step draws anything.
  [[nodiscard]] bool is_still() const;

  Filter filter = Filter::kBilinear;
  // What is where nothing of the picture is: numbers of the stored picture, one for each channel or
  // one for all; none: 0. Masks have their own number for it, unless one is given.
  std::vector<int> fill;
  std::optional<int> mask_fill;

 private:
  std::vector<Step> steps_;
};

// Draws the sample's view of a width x height picture: each step narrows what the steps before it
// left; a flip is noted, and done last. What each draws is said in its file; one that is there
// several times draws other numbers each time.
// Throws Error(kValue) for an empty picture and for one smaller than a random window, Error(kLimit)
// where a side would exceed 2^24 pixels.
View draw_view(const GeometrySpec& spec, const DrawnOf& of, const SampleRng& rng);
View draw_view(const GeometrySpec& spec, int width, int height, const SampleRng& rng);

// The rectangle of the picture that the view needs: crop, cut to the support of the window's
// pixels. Throws Error(kValue) for sides outside [1, 2^24] and for a window that misses the resized
// picture.
Rect source_rect(const View& view, Filter filter);

// Whether any of the window may be fill.
bool shows_fill(const View& view);

// The view with the window's part alone that the picture has any share in: all around is fill, or
// border, of which that part has all that it is made of. Where there is no such part, some pixel.
View without_fill(const View& view);

// Of each column and row of a window with a border, mirrored as it is, the one of `part` that is
// there: of the window of without_fill(view).
void border_places(const View& view, const Rect& part, std::vector<int>& columns,
                   std::vector<int>& rows);

// What of a rectangle of the picture, which a view is made of, is to be decoded: what is seen, at
// least one pixel.
Rect seen_part(const View& view, Rect part);

// What must be decoded of the picture for the view, which is cut by the nearest pixel or by its own
// filter. Throws as source_rect().
Rect decoded_rect(const View& view, bool nearest);

// Whether a box, in pixels of the picture, is one that the view keeps for its centre.
bool centre_stays(const View& view, BoxXyxy box);

// Whether a box reaches over the border of a picture by no more than float32 rounds.
bool is_inside(const BoxXyxy& box, double width, double height);

// Whether it was large enough, and not over the border by more than float32 rounds, wherever
// objects were dropped between two steps.
bool stands(const View& view, BoxXyxy box);

}  // namespace fastload
