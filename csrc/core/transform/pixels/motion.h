// Where the pixels of a picture go: what an operation that moves them says of it, once for the
// picture, its mask and its points.
#pragma once

#include <array>
#include <vector>

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
  // The same of a picture of another size: `x` and `y` are how many pixels of the motion's picture
  // one of its pixels is wide and high.
  [[nodiscard]] Motion at_size(double x, double y) const {
    return {{a[0], a[1] * y / x, a[2] / x, a[3] * x / y, a[4], a[5] / y, a[6] * x, a[7] * y},
            perspective};
  }
  // Whether it mirrors a picture of that size.
  [[nodiscard]] bool is_flip(int width, int height) const {
    const auto along = [](double factor, double shift, int side) {
      return (factor == 1 && shift == 0) || (factor == -1 && shift == side);
    };
    return !perspective && a[1] == 0 && a[3] == 0 && along(a[0], a[2], width) &&
           along(a[4], a[5], height);
  }
  // Whether every pixel stays where it is.
  [[nodiscard]] bool is_identity() const { return !perspective && a == Motion().a; }
};

// Where a view's operations move a sample's pixels.
struct Motions {
  std::vector<Motion> source;  // of the whole picture, of the size that the view was drawn of
  std::vector<Motion> cut;     // of the view's window
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
