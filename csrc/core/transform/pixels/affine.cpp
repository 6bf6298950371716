// torchvision's affine of a Pillow picture: turned, moved, scaled and sheared about its centre.
#include <cmath>

#include "transform/pixels/moving.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

// Angles are degrees. Translations are parts of the width and the height, rounded to whole pixels,
// halves to even. The centre is in pixels; without one (has_center 0) it is the picture's.
constexpr const char* kParameters[] = {
    "angle",   "translate_x", "translate_y", "scale",    "shear_x",
    "shear_y", "has_center",  "center_x",    "center_y", "version",
    FASTLOAD_FILTER_AND_FILL};

// In the order of torchvision's _get_inverse_affine_matrix, rounding for rounding: of its version 1
// or 2, which is of torchvision.transforms.v2.
Motion motion(std::span<const double> numbers, const PixelDraws&, int width, int height) {
  const double angle = radians(numbers[0]);
  const double move_x = std::nearbyint(numbers[1] * width);
  const double move_y = std::nearbyint(numbers[2] * height);
  const double scale = numbers[3];
  const double shear_x = radians(numbers[4]);
  const double shear_y = radians(numbers[5]);
  const bool has_center = numbers[6] != 0.0;
  const double center_x = has_center ? numbers[7] : width * 0.5;
  const double center_y = has_center ? numbers[8] : height * 0.5;

  if (numbers[9] == 2.0) {
    const double x = center_x + move_x, y = center_y + move_y;
    const double first = std::cos(angle - shear_y) / std::cos(shear_y);
    const double third = std::sin(angle - shear_y) / std::cos(shear_y);
    const double second = -(first * std::tan(shear_x) + std::sin(angle));
    const double fourth = std::cos(angle) - third * std::tan(shear_x);
    std::array<double, 6> m{fourth / scale, -second / scale, 0.0,
                            -third / scale, first / scale,   0.0};
    m[2] = center_x - m[0] * x - m[1] * y;
    m[5] = center_y - m[3] * x - m[4] * y;
    return Motion::affine(m);
  }
  const double a = std::cos(angle - shear_y) / std::cos(shear_y);
  const double b =
      -std::cos(angle - shear_y) * std::tan(shear_x) / std::cos(shear_y) - std::sin(angle);
  const double c = std::sin(angle - shear_y) / std::cos(shear_y);
  const double d =
      -std::sin(angle - shear_y) * std::tan(shear_x) / std::cos(shear_y) + std::cos(angle);
  std::array<double, 6> m{d / scale, -b / scale, 0.0, -c / scale, a / scale, 0.0};
  m[2] += m[0] * (-center_x - move_x) + m[1] * (-center_y - move_y);
  m[5] += m[3] * (-center_x - move_x) + m[4] * (-center_y - move_y);
  m[2] += center_x;
  m[5] += center_y;
  return Motion::affine(m);
}

}  // namespace

constinit const PixelOperation kAffine{"affine", 30, kParameters, apply_filtered<motion>, motion};

}  // namespace fastload
