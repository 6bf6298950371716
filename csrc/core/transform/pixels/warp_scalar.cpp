#include <algorithm>
#include <cmath>
#include <cstring>

#include "transform/pixels/warp_kernels.h"

namespace fastload {
namespace {

struct At {
  double x, y;
};

At source_of(const Motion& motion, int column, int row) {
  const auto& a = motion.a;
  const double x = column + 0.5;
  const double y = row + 0.5;
  At at{a[0] * x + a[1] * y + a[2], a[3] * x + a[4] * y + a[5]};
  if (motion.perspective) {
    const double w = a[6] * x + a[7] * y + 1.0;
    at = {at.x / w, at.y / w};
  }
  return at;
}

bool is_inside(const At& at, const Picture& picture) {
  return at.x >= 0.0 && at.x < picture.width && at.y >= 0.0 && at.y < picture.height;
}

const uint8_t* pixel(const Picture& picture, int x, int y) {
  const size_t column = static_cast<size_t>(std::clamp(x, 0, picture.width - 1));
  const size_t row = static_cast<size_t>(std::clamp(y, 0, picture.height - 1));
  return picture.pixels + 3 * (row * static_cast<size_t>(picture.width) + column);
}

void nearest(const Picture& from, uint32_t x, uint32_t y, uint32_t dx, uint32_t dy, uint8_t* to) {
  for (int i = 0; i < from.width; ++i, to += 3, x += dx, y += dy) {
    const int column = static_cast<int32_t>(x) >> 16;
    const int row = static_cast<int32_t>(y) >> 16;
    if (column < 0 || column >= from.width || row < 0 || row >= from.height) continue;
    std::memcpy(to, pixel(from, column, row), 3);
  }
}

double linear(double left, double right, double part) { return left + (right - left) * part; }

void bilinear_row(const Picture& from, const Motion& motion, int row, uint8_t* to) {
  for (int column = 0; column < from.width; ++column, to += 3) {
    At at = source_of(motion, column, row);
    if (!is_inside(at, from)) continue;
    at = {at.x - 0.5, at.y - 0.5};
    const int x = static_cast<int>(std::floor(at.x));
    const int y = static_cast<int>(std::floor(at.y));
    const At part{at.x - x, at.y - y};
    const uint8_t* const upper[] = {pixel(from, x, y), pixel(from, x + 1, y)};
    const uint8_t* const lower[] = {pixel(from, x, y + 1), pixel(from, x + 1, y + 1)};
    for (int c = 0; c < 3; ++c) {
      const double above = linear(upper[0][c], upper[1][c], part.x);
      const double below = linear(lower[0][c], lower[1][c], part.x);
      to[c] = static_cast<uint8_t>(linear(above, below, part.y));
    }
  }
}

double cubic(double v1, double v2, double v3, double v4, double part) {
  const double p2 = v3 - v1;
  const double p3 = 2 * (v1 - v2) + v3 - v4;
  const double p4 = v2 - v1 - v3 + v4;
  return v2 + part * (p2 + part * (p3 + part * p4));
}

void bicubic_row(const Picture& from, const Motion& motion, int row, uint8_t* to) {
  for (int column = 0; column < from.width; ++column, to += 3) {
    At at = source_of(motion, column, row);
    if (!is_inside(at, from)) continue;
    at = {at.x - 0.5, at.y - 0.5};
    const int x = static_cast<int>(std::floor(at.x));
    const int y = static_cast<int>(std::floor(at.y));
    const At part{at.x - x, at.y - y};
    for (int c = 0; c < 3; ++c) {
      double lines[4];
      for (int i = 0; i < 4; ++i) {
        lines[i] =
            cubic(pixel(from, x - 1, y - 1 + i)[c], pixel(from, x, y - 1 + i)[c],
                  pixel(from, x + 1, y - 1 + i)[c], pixel(from, x + 2, y - 1 + i)[c], part.x);
      }
      const double value = cubic(lines[0], lines[1], lines[2], lines[3], part.y);
      to[c] = static_cast<uint8_t>(std::clamp(value, 0.0, 255.0));
    }
  }
}

void filtered(const Picture& from, const Warp& warp, uint8_t*, uint8_t* to) {
  const auto row = warp.filter == WarpFilter::kBilinear ? bilinear_row : bicubic_row;
  const size_t stride = size_t{3} * static_cast<size_t>(from.width);
  for (int y = 0; y < from.height; ++y, to += stride) {
    for (size_t i = 0; i < stride; ++i) to[i] = warp.fill[i % 3];
    row(from, warp.motion, y, to);
  }
}

size_t no_scratch(int, int) { return 0; }

}  // namespace

const WarpKernels kScalarWarp{nearest, filtered, no_scratch};

}  // namespace fastload
