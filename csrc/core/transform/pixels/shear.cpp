// Rows shifted against each other, or columns: as torchvision's AutoAugment and its kin do it, and
// as timm's do.
#include <cmath>

#include "transform/pixels/moving.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

// Pixels along for each pixel across, from the picture's corner. `by_angle` 1: by the factor's
// angle in degrees, as torchvision has it, which rounds; 0: by the factor itself, as timm has it.
constexpr const char* kParameters[] = {"factor", "by_angle", FASTLOAD_FILTER_AND_FILL};

double angle_of(double factor) { return radians(degrees(std::atan(factor))); }

Motion along_x(std::span<const double> numbers, const PixelDraws&, int, int) {
  const double factor = numbers[1] != 0.0 ? std::tan(angle_of(numbers[0])) : numbers[0];
  return Motion::affine({1, factor, 0, 0, 1, 0});
}

Motion along_y(std::span<const double> numbers, const PixelDraws&, int, int) {
  double factor = numbers[0];
  if (numbers[1] != 0.0) {
    const double angle = angle_of(factor);
    factor = std::sin(angle) / std::cos(angle);  // not the tangent: torchvision's order
  }
  return Motion::affine({1, 0, 0, factor, 1, 0});
}

}  // namespace

constinit const PixelOperation kShearX{"shear_x", 32, kParameters, apply_filtered<along_x>,
                                       along_x};
constinit const PixelOperation kShearY{"shear_y", 33, kParameters, apply_filtered<along_y>,
                                       along_y};

}  // namespace fastload
