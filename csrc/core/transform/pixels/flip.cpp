// The picture mirrored, as an operation on pixels: where it stands behind one that moves them, or
// in a group. Elsewhere the geometry does it for nothing.
#include "transform/pixels/moving.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

Motion across(std::span<const double>, const PixelDraws&, int width, int) {
  return Motion::affine({-1, 0, static_cast<double>(width), 0, 1, 0});
}

Motion down(std::span<const double>, const PixelDraws&, int, int height) {
  return Motion::affine({1, 0, 0, 0, -1, static_cast<double>(height)});
}

}  // namespace

constinit const PixelOperation kMirror{"horizontal_flip", 36, {}, apply_exact<across>, across};
constinit const PixelOperation kUpsideDown{"vertical_flip", 37, {}, apply_exact<down>, down};

}  // namespace fastload
