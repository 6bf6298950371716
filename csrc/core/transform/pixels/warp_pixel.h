// One pixel of a bilinear or bicubic warp, plainly: kernels ask it where an estimate is too near to
// a whole number.
#pragma once

#include <algorithm>
#include <cmath>

#include "transform/pixels/operation.h"

namespace fastload {
namespace {  // each file has its own, compiled for its instruction set

struct At {
  double x, y;
};

// What is seen at the centre of a pixel.
inline At source_of(const Motion& motion, int column, int row) {
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

inline bool is_inside(const At& at, const Picture& picture) {
  return at.x >= 0.0 && at.x < picture.width && at.y >= 0.0 && at.y < picture.height;
}

// The nearest one that exists.
inline const uint8_t* pixel(const Picture& picture, int x, int y) {
  const size_t column = static_cast<size_t>(std::clamp(x, 0, picture.width - 1));
  const size_t row = static_cast<size_t>(std::clamp(y, 0, picture.height - 1));
  return picture.pixels + 3 * (row * static_cast<size_t>(picture.width) + column);
}

inline double between(const double (&v)[2], double part) { return v[0] + (v[1] - v[0]) * part; }

inline double between(const double (&v)[4], double part) {
  const double p2 = v[2] - v[0];
  const double p3 = 2 * (v[0] - v[1]) + v[2] - v[3];
  const double p4 = v[1] - v[0] - v[2] + v[3];
  return v[1] + part * (p2 + part * (p3 + part * p4));
}

// A place, by the pixel above it on the left.
struct Between {
  int x, y;
  double dx, dy;
};

inline Between between_pixels(const At& at) {
  const double x = at.x - 0.5, y = at.y - 0.5;
  const double left = std::floor(x), top = std::floor(y);
  return {static_cast<int>(left), static_cast<int>(top), x - left, y - top};
}

// Pixels around a place, as many across and down: 2, bilinear, or 4, bicubic.
template <int kTaps>
struct Neighbours {
  Neighbours(const Picture& from, const Between& place) : dx(place.dx), dy(place.dy) {
    constexpr int kFirst = 1 - kTaps / 2;
    for (int i = 0; i < kTaps; ++i) {
      rows[i] = pixel(from, 0, place.y + kFirst + i);
      columns[i] = 3 * std::clamp(place.x + kFirst + i, 0, from.width - 1);
    }
  }

  [[nodiscard]] uint8_t value(int channel) const {
    double lines[kTaps];
    for (int i = 0; i < kTaps; ++i) {
      double values[kTaps];
      for (int k = 0; k < kTaps; ++k) values[k] = rows[i][columns[k] + channel];
      lines[i] = between(values, dx);
    }
    return static_cast<uint8_t>(std::clamp(between(lines, dy), 0.0, 255.0));
  }

  const uint8_t* rows[kTaps];
  int columns[kTaps];  // their first bytes
  double dx, dy;
};

}  // namespace
}  // namespace fastload
