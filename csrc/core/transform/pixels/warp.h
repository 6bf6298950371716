// Pictures whose pixels are moved: bit for bit Pillow's Image.transform(AFFINE or PERSPECTIVE) to
// the same size, or another one (libImaging/Geometry.c).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/geometry.h"
#include "transform/pixels/motion.h"
#include "transform/pixels/operation.h"

namespace fastload {

// As numbers of an operation.
enum class WarpFilter : uint8_t { kNearest = 0, kBilinear = 1, kBicubic = 2 };

struct Warp {
  Motion motion;
  WarpFilter filter = WarpFilter::kNearest;
  std::array<uint8_t, 3> fill{};  // of what came from outside the picture
};

// Bilinear and bicubic: in double. x = 0.5 + column, likewise y; X = (a0 x + a1 y) + a2, in this
// order and divided by a6 x + a7 y + 1 for perspective. Outside [0, width) x [0, height): the fill.
// From X - 0.5 and its floor come the columns and their fraction; columns are kept inside, and so
// are rows. l + (r - l) * dx along both (bicubic: all four) rows, then down; truncated, bicubic
// clamped.
void warp(const Warp& warp, Canvas& canvas);

// The same to another size; both are apart. `scratch` gives memory of so many bytes, aligned to 64.
void warp_into(const Warp& warp, const Picture& from,
               const std::function<uint8_t*(size_t)>& scratch, const Picture& to);

// By the nearest pixel, of `pixel_bytes` bytes each; `wide`: as Pillow does it for pixels of 16
// bits, which it rounds otherwise. `fill` is a pixel. Rows have no gaps; `from` and `to` are apart.
void move_nearest(const Motion& motion, bool wide, size_t pixel_bytes, int width, int height,
                  const uint8_t* from, const uint8_t* fill, uint8_t* to);
// The same of from_width x from_height pixels to width x height.
void move_nearest_into(const Motion& motion, bool wide, size_t pixel_bytes, int from_width,
                       int from_height, const uint8_t* from, const uint8_t* fill, int width,
                       int height, uint8_t* to);
// The same of pixels of 1 byte, 0 outside, where little of both pictures is looked at: of `from`'s
// the part `known`, whose rows are `stride` apart and beside which all is 0; of the moved one, of
// width x height pixels, the part `wanted`.
void move_nearest_part(const Motion& motion, const Rect& known, const uint8_t* from, size_t stride,
                       int width, int height, const Rect& wanted, uint8_t* to);
// Whether the motion neither turns nor shears. Then: which column and row of the picture each of
// the moved one's shows, by move_nearest_into() of pixels of 8 bits; -1: none.
bool nearest_lines(const Motion& motion, int from_width, int from_height, int width, int height,
                   std::vector<int>& columns, std::vector<int>& rows);

}  // namespace fastload
