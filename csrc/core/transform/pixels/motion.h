// Where the pixels of a picture go: what an operation that moves them says of it, once for the
// picture, its mask and its points.
#pragma once

#include <array>

namespace fastload {

// What is seen at (x, y) of the moved picture lay at
//   ((a0 x + a1 y + a2) / (a6 x + a7 y + 1), (a3 x + a4 y + a5) / (a6 x + a7 y + 1))
// before: Pillow's coefficients of Image.transform. Numbers are pixels; (0, 0) is the corner of the
// first one, whose centre is (0.5, 0.5).
struct Motion {
  std::array<double, 8> a{1, 0, 0, 0, 1, 0, 0, 0};
  // Pillow has two rules for the nearest pixel: one of affine motions, one of all others.
  bool perspective = false;

  static Motion affine(const std::array<double, 6>& a) {
    return {{a[0], a[1], a[2], a[3], a[4], a[5], 0, 0}, false};
  }
  // Whether every pixel stays where it is.
  [[nodiscard]] bool is_identity() const { return !perspective && a == Motion().a; }
};

// Where a motion takes points: the other way round.
class PointMotion {
 public:
  explicit PointMotion(const Motion& motion) {
    const auto& a = motion.a;
    x_ = {a[4] - a[5] * a[7], a[2] * a[7] - a[1], a[1] * a[5] - a[2] * a[4]};
    y_ = {a[5] * a[6] - a[3], a[0] - a[2] * a[6], a[2] * a[3] - a[0] * a[5]};
    w_ = {a[3] * a[7] - a[4] * a[6], a[1] * a[6] - a[0] * a[7], a[0] * a[4] - a[1] * a[3]};
  }
  void move(double& x, double& y) const {
    const auto along = [&](const std::array<double, 3>& row) {
      return row[0] * x + row[1] * y + row[2];
    };
    const double w = along(w_);
    const double moved = along(x_) / w;
    y = along(y_) / w;
    x = moved;
  }

 private:
  std::array<double, 3> x_, y_, w_;  // of the inverse, times the determinant
};

}  // namespace fastload
