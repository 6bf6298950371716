// Pillow's Image.rotate, to a picture of the same size.
#include <charconv>
#include <cmath>

#include "transform/pixels/moving.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

// The angle is in degrees, counter-clockwise; the centre as affine's.
constexpr const char* kParameters[] = {"angle", "has_center", "center_x", "center_y",
                                       FASTLOAD_FILTER_AND_FILL};

// Python's round(value, 15), of [-1, 1].
double rounded(double value) {
  std::array<char, 32> text;
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, 15);
  double found = 0.0;
  std::from_chars(text.data(), end.ptr, found);
  return found;
}

Motion motion(std::span<const double> numbers, const PixelDraws&, int width, int height) {
  double angle = std::fmod(numbers[0], 360.0);
  if (angle < 0.0) angle += 360.0;
  const bool has_center = numbers[1] != 0.0;
  if (!has_center) {  // quarters are exact
    const auto [w, h] =
        std::array<double, 2>{static_cast<double>(width), static_cast<double>(height)};
    if (angle == 0.0) return {};
    if (angle == 180.0) return Motion::affine({-1, 0, w, 0, -1, h});
    if (angle == 90.0 && width == height) return Motion::affine({0, -1, w, 1, 0, 0});
    if (angle == 270.0 && width == height) return Motion::affine({0, 1, 0, -1, 0, h});
  }
  const double center_x = has_center ? numbers[2] : width / 2.0;
  const double center_y = has_center ? numbers[3] : height / 2.0;
  const double turn = -radians(angle);
  std::array<double, 6> m{rounded(std::cos(turn)),  rounded(std::sin(turn)), 0.0,
                          rounded(-std::sin(turn)), rounded(std::cos(turn)), 0.0};
  m[2] = m[0] * -center_x + m[1] * -center_y + 0.0;
  m[5] = m[3] * -center_x + m[4] * -center_y + 0.0;
  m[2] += center_x;
  m[5] += center_y;
  return Motion::affine(m);
}

}  // namespace

constinit const PixelOperation kRotate{"rotate", 31, kParameters, apply_filtered<motion>, motion};

}  // namespace fastload
