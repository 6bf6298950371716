#include "transform/mosaic.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "transform/pixels/mix.h"
#include "transform/pixels/moving.h"

namespace fastload {
namespace {

using Matrix = std::array<double, 9>;  // row after row

constexpr Matrix kUnit{1, 0, 0, 0, 1, 0, 0, 0, 1};

Matrix operator*(const Matrix& a, const Matrix& b) {
  Matrix product{};
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) {
      product[3 * i + j] = a[3 * i] * b[j] + a[3 * i + 1] * b[3 + j] + a[3 * i + 2] * b[6 + j];
    }
  }
  return product;
}

// The inverse as a motion; nothing where there is none.
std::optional<Motion> inverse(const Matrix& m) {
  const Matrix adjugate{
      m[4] * m[8] - m[5] * m[7], m[2] * m[7] - m[1] * m[8], m[1] * m[5] - m[2] * m[4],
      m[5] * m[6] - m[3] * m[8], m[0] * m[8] - m[2] * m[6], m[2] * m[3] - m[0] * m[5],
      m[3] * m[7] - m[4] * m[6], m[1] * m[6] - m[0] * m[7], m[0] * m[4] - m[1] * m[3]};
  const double last = adjugate[8];
  if (!(std::abs(last) > 0)) return {};
  Motion motion;
  for (size_t i = 0; i < 8; ++i) motion.a[i] = adjugate[i] / last;
  motion.perspective = motion.a[6] != 0 || motion.a[7] != 0;
  return motion;
}

// Two uniform numbers in [0, 1).
std::array<double, 2> uniforms(const SampleRng& rng, DrawOp op, uint32_t block) {
  const PhiloxWords words = rng.words(op, block);
  return {uniform_double(words[0], words[1]), uniform_double(words[2], words[3])};
}

double between(double low, double high, double u) { return low + (high - low) * u; }

// The size that a picture has in a mosaic: its longer side is the mosaic's.
PictureSide fitted(const PictureSide& side, int size) {
  const double ratio = static_cast<double>(size) / std::max(side.width, side.height);
  const auto of = [&](int length) {
    return std::clamp(static_cast<int>(std::ceil(length * ratio)), 1, size);
  };
  return {of(side.width), of(side.height)};
}

// Four, whose corners meet.
void place_four(int size, const SampleRng& rng, std::vector<PlacedPicture>& pictures) {
  const auto [u, v] = uniforms(rng, DrawOp::kMosaic, 0);
  const int half = size / 2;
  const int y = static_cast<int>(between(half, 2 * size - half, u));
  const int x = static_cast<int>(between(half, 2 * size - half, v));
  for (size_t i = 0; i < pictures.size(); ++i) {
    PlacedPicture& picture = pictures[i];
    picture.x = i % 2 == 0 ? x - picture.width : x;
    picture.y = i < 2 ? y - picture.height : y;
  }
}

// Nine: the first in the middle, the others around it, clockwise from above, each where the one
// before it ends.
void place_nine(int size, std::vector<PlacedPicture>& p) {
  const auto right_of = [&](size_t i) { return p[i].x + p[i].width; };
  const auto below = [&](size_t i) { return p[i].y + p[i].height; };
  const auto set = [&](size_t i, int x, int y) { p[i].x = x, p[i].y = y; };
  const int corner = size - size / 2;  // on the canvas, which is cut from a larger one
  set(0, corner, corner);
  set(1, corner, corner - p[1].height);
  set(2, right_of(1), corner - p[2].height);
  set(3, right_of(0), corner);
  set(4, right_of(0), below(3));
  set(5, right_of(0) - p[5].width, below(0));
  set(6, p[5].x - p[6].width, below(0));
  set(7, corner - p[7].width, below(0) - p[7].height);
  set(8, corner - p[8].width, p[7].y - p[8].height);
}

Matrix drawn_matrix(const MosaicSpec& spec, const Composition& composition, const SampleRng& rng,
                    double& gain) {
  const auto drawn = [&](uint32_t block, double most) {
    const auto [u, v] = uniforms(rng, DrawOp::kPerspective, block);
    return std::array{between(-most, most, u), between(-most, most, v)};
  };
  Matrix centre = kUnit, perspective = kUnit, turn = kUnit, shear = kUnit, shift = kUnit;
  centre[2] = -composition.canvas_width / 2.0;
  centre[5] = -composition.canvas_height / 2.0;
  const auto [px, py] = drawn(0, spec.perspective);
  perspective[6] = px;
  perspective[7] = py;
  const auto [u, v] = uniforms(rng, DrawOp::kPerspective, 1);
  const double angle = radians(between(-spec.degrees, spec.degrees, u));
  gain = between(1 - spec.scale, 1 + spec.scale, v);
  turn[0] = turn[4] = gain * std::cos(angle);
  turn[1] = gain * std::sin(angle);
  turn[3] = -turn[1];
  const auto [sx, sy] = drawn(2, spec.shear);
  shear[1] = std::tan(radians(sx));
  shear[3] = std::tan(radians(sy));
  const auto [tx, ty] = drawn(3, spec.translate);
  shift[2] = (0.5 + tx) * spec.size;
  shift[5] = (0.5 + ty) * spec.size;
  return shift * shear * turn * perspective * centre;
}

Rect common(const Rect& a, const Rect& b) {
  const int x = std::max(a.x, b.x), y = std::max(a.y, b.y);
  const int right = std::min(a.x + a.width, b.x + b.width);
  const int bottom = std::min(a.y + a.height, b.y + b.height);
  if (right <= x || bottom <= y) return {};
  return {x, y, right - x, bottom - y};
}

// The canvas's part that a sample of that size shows, with the neighbours that pixels are between.
Rect seen_of_canvas(const Composition& composition, int size) {
  const Rect canvas{0, 0, composition.canvas_width, composition.canvas_height};
  const auto& a = composition.of_canvas.a;
  double left = INFINITY, top = INFINITY, right = -INFINITY, bottom = -INFINITY;
  for (const double y : {0.0, static_cast<double>(size)}) {
    for (const double x : {0.0, static_cast<double>(size)}) {
      const double w = a[6] * x + a[7] * y + 1.0;
      if (!(w > 1e-9)) return canvas;  // behind the eye
      const double at_x = (a[0] * x + a[1] * y + a[2]) / w;
      const double at_y = (a[3] * x + a[4] * y + a[5]) / w;
      left = std::min(left, at_x), right = std::max(right, at_x);
      top = std::min(top, at_y), bottom = std::max(bottom, at_y);
    }
  }
  const auto whole = [](double at, int most) {
    return static_cast<int>(std::clamp(at, 0.0, static_cast<double>(most)));
  };
  const int x = whole(std::floor(left) - 2, canvas.width);
  const int y = whole(std::floor(top) - 2, canvas.height);
  return {x, y, whole(std::ceil(right) + 2, canvas.width) - x,
          whole(std::ceil(bottom) + 2, canvas.height) - y};
}

// The same motion to a picture whose corner is at (x, y) of the one that it went to.
Motion shifted(Motion motion, int x, int y) {
  auto& a = motion.a;
  for (size_t i = 0; i < 2; ++i) {
    a[i] -= x * a[6 + i];
    a[3 + i] -= y * a[6 + i];
  }
  a[2] -= x;
  a[5] -= y;
  return motion;
}

// The pixels of the sample whose middles lie in [low, high) of an axis of the canvas.
Span middles_between(double step, double shift, double low, double high, int size) {
  const auto first_from = [&](double bound) {
    const auto at = [&](int pixel) { return step * (pixel + 0.5) + shift; };
    const double near = std::ceil((bound - shift) / step - 0.5);
    int pixel = static_cast<int>(std::clamp(near, 0.0, static_cast<double>(size)));
    while (pixel > 0 && at(pixel - 1) >= bound) --pixel;
    while (pixel < size && at(pixel) < bound) ++pixel;
    return pixel;
  };
  return {first_from(low), first_from(high)};
}

// An axis of a picture that lies on the canvas from `place` on, `length` long; `kept` pixels of it
// are resized to the pixels of the sample.
AxisSpec placed_axis(double step, double shift, int place, int length, int kept, Span pixels) {
  const double ratio = static_cast<double>(kept) / length;
  AxisSpec axis;
  axis.in_size = kept;
  axis.out_size = axis.count = pixels.end - pixels.begin;
  axis.from = (step * pixels.begin + shift - place) * ratio;
  axis.step = step * ratio;
  return axis;
}

}  // namespace

Composition compose(const MosaicSpec& spec, std::span<const PictureSide> sizes,
                    const SampleRng& rng) {
  if (sizes.size() != 1 && sizes.size() != static_cast<size_t>(spec.tiles)) {
    throw Error(ErrorKind::kValue, "A mosaic has " + std::to_string(spec.tiles) +
                                       " pictures, or one. Found: " + std::to_string(sizes.size()));
  }
  Composition composition;
  for (const PictureSide& side : sizes) {
    if (side.width < 1 || side.height < 1) {
      throw Error(ErrorKind::kValue, "A picture of a mosaic must have at least 1 x 1 pixels.");
    }
    const auto [width, height] = fitted(side, spec.size);
    composition.pictures.push_back({width, height, 0, 0, {}});
  }
  const PlacedPicture& first = composition.pictures.front();
  const bool alone = sizes.size() == 1;
  composition.canvas_width = alone ? first.width : 2 * spec.size;
  composition.canvas_height = alone ? first.height : 2 * spec.size;
  if (!alone && spec.tiles == 4) place_four(spec.size, rng, composition.pictures);
  if (!alone && spec.tiles == 9) place_nine(spec.size, composition.pictures);
  const std::optional<Motion> back =
      inverse(drawn_matrix(spec, composition, rng, composition.gain));
  if (!back) return composition;  // nothing is seen
  composition.of_canvas = *back;
  composition.visible = seen_of_canvas(composition, spec.size);
  const Rect& visible = composition.visible;
  composition.motion = shifted(*back, visible.x, visible.y);
  for (PlacedPicture& picture : composition.pictures) {
    picture.shown = common(visible, {picture.x, picture.y, picture.width, picture.height});
    picture.shown.x -= picture.x;
    picture.shown.y -= picture.y;
  }
  return composition;
}

PictureSide kept_size(const PlacedPicture& picture, const PictureSide& stored) {
  const bool smaller =
      std::max(stored.width, stored.height) < std::max(picture.width, picture.height);
  return smaller ? stored : PictureSide{picture.width, picture.height};
}

ShownPart shown_part(const Composition& made, const PlacedPicture& picture, const PictureSide& kept,
                     int size) {
  if (made.visible.width == 0 || made.visible.height == 0) return {};
  const auto& a = made.of_canvas.a;
  const auto shown = [&](double step, double shift, int place, int length, int canvas) {
    return middles_between(step, shift, std::max(place, 0), std::min(place + length, canvas), size);
  };
  const Span x = shown(a[0], a[2], picture.x, picture.width, made.canvas_width);
  const Span y = shown(a[4], a[5], picture.y, picture.height, made.canvas_height);
  if (x.end <= x.begin || y.end <= y.begin) return {};
  return {{x.begin, y.begin, x.end - x.begin, y.end - y.begin},
          {placed_axis(a[0], a[2], picture.x, picture.width, kept.width, x),
           placed_axis(a[4], a[5], picture.y, picture.height, kept.height, y)}};
}

double mixup_weight(double alpha, const SampleRng& rng) {
  const PhiloxWords words = rng.words(DrawOp::kMixUp, 0);
  std::array<double, 2> weights{};
  draw_dirichlet({words[0], words[1]}, 0, alpha, weights);
  return weights[0];
}

void mix_up(uint8_t* first, const uint8_t* second, size_t bytes, double weight) {
  const double rest = 1 - weight;
  for (size_t i = 0; i < bytes; ++i) {
    first[i] = static_cast<uint8_t>(first[i] * weight + second[i] * rest);
  }
}

}  // namespace fastload
