// The picture moved to the right or down: as torchvision's AutoAugment and its kin do it, and as
// timm's do.
#include <cmath>

#include "transform/pixels/moving.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

// By pixels + share * width (or height) pixels. `whole` 1: as many as that has whole pixels, as
// torchvision has it; 0: that many, as timm has it (whose signs are the other way round).
constexpr const char* kParameters[] = {"pixels", "share", "whole", FASTLOAD_FILTER_AND_FILL};

double distance(std::span<const double> numbers, int size) {
  const double pixels = numbers[0] + numbers[1] * size;
  // torchvision's magnitudes are float32: what is a whole number there must not fall short of it.
  return numbers[2] != 0.0 ? std::trunc(static_cast<float>(pixels)) : pixels;
}

Motion along_x(std::span<const double> numbers, const PixelDraws&, int width, int) {
  return Motion::affine({1, 0, -distance(numbers, width), 0, 1, 0});
}

Motion along_y(std::span<const double> numbers, const PixelDraws&, int, int height) {
  return Motion::affine({1, 0, 0, 0, 1, -distance(numbers, height)});
}

}  // namespace

constinit const PixelOperation kTranslateX{"translate_x", 34, kParameters, apply_filtered<along_x>,
                                           along_x};
constinit const PixelOperation kTranslateY{"translate_y", 35, kParameters, apply_filtered<along_y>,
                                           along_y};

}  // namespace fastload
