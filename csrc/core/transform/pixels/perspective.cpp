// torchvision's RandomPerspective of a Pillow picture: its corners pulled inwards.
#include <algorithm>
#include <cmath>
#include <utility>

#include "transform/pixels/moving.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"distortion_scale", FASTLOAD_FILTER_AND_FILL};

struct Corner {
  double x, y;
};
using Corners = std::array<Corner, 4>;  // top left, top right, bottom right, bottom left

// Where the corners go, as torchvision's get_params draws them: each word is one number.
Corners drawn(double scale, const PixelDraws& draws, int width, int height) {
  const auto most_x = static_cast<uint32_t>(scale * (width / 2));
  const auto most_y = static_cast<uint32_t>(scale * (height / 2));
  Corners corners;
  for (uint32_t i = 0; i < 4; ++i) {
    const PhiloxWords words = draws.words(PixelDraws::kOwn + i);
    const double x = uniform_below(words[0], words[1], most_x + 1);
    const double y = uniform_below(words[2], words[3], most_y + 1);
    const bool right = i == 1 || i == 2, bottom = i >= 2;
    corners[i] = {right ? width - 1 - x : x, bottom ? height - 1 - y : y};
  }
  return corners;
}

// The eight coefficients of the motion, by elimination with pivots: torchvision solves the same
// equations by LAPACK, and rounds to float32, too.
Motion through(const Corners& from, const Corners& to) {
  std::array<std::array<long double, 9>, 8> rows;
  for (size_t i = 0; i < 4; ++i) {
    const auto [x, y] = to[i];
    const auto [u, v] = from[i];
    rows[2 * i] = {x, y, 1, 0, 0, 0, -u * x, -u * y, u};
    rows[2 * i + 1] = {0, 0, 0, x, y, 1, -v * x, -v * y, v};
  }
  for (size_t k = 0; k < 8; ++k) {
    const auto larger = [k](const auto& a, const auto& b) {
      return std::abs(a[k]) < std::abs(b[k]);
    };
    std::swap(rows[k], *std::max_element(rows.begin() + k, rows.end(), larger));
    if (rows[k][k] == 0) return {};  // one pixel wide or high: there is nothing to pull
    for (size_t i = 0; i < 8; ++i) {
      if (i == k) continue;
      const long double factor = rows[i][k] / rows[k][k];
      for (size_t j = k; j < 9; ++j) rows[i][j] -= factor * rows[k][j];
    }
  }
  Motion motion;
  motion.perspective = true;
  for (size_t k = 0; k < 8; ++k) {
    motion.a[k] = static_cast<float>(static_cast<double>(rows[k][8] / rows[k][k]));
  }
  return motion;
}

Motion motion(std::span<const double> numbers, const PixelDraws& draws, int width, int height) {
  const double right = width - 1, bottom = height - 1;
  return through({{{0, 0}, {right, 0}, {right, bottom}, {0, bottom}}},
                 drawn(numbers[0], draws, width, height));
}

}  // namespace

constinit const PixelOperation kPerspective{"perspective", 38, kParameters, apply_filtered<motion>,
                                            motion};

}  // namespace fastload
