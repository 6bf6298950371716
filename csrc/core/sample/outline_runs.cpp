#include "sample/outline_runs.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "base/error.h"

namespace fastload {
namespace {

// pycocotools draws outlines on a grid of fifths of pixels: a side goes from point to point of it,
// and where it passes the middle of a column of pixels, which is between the points 5 n + 2 and
// 5 n + 3, there the object begins or ends (maskApi.c, rleFrPoly).
constexpr int kGrid = 5;
constexpr int kMiddle = 2;
constexpr double kMost = 1 << 27;                    // pixels: differences on the grid fit an int
constexpr size_t kMostChanges = size_t{1} << 26;     // of an outline
constexpr uint64_t kMostPixels = uint64_t{1} << 32;  // numbers of pixels are 32 bits wide there

int on_grid(double at) {
  if (!(std::abs(at) <= kMost)) {  // NaN, too
    throw Error(ErrorKind::kFormat, "the outline of an object has the coordinate " +
                                        std::to_string(at) + ". Pack again.");
  }
  return static_cast<int>(kGrid * at + .5);  // towards zero
}

int first_column(int from) { return from <= kMiddle ? 0 : (from - kMiddle + kGrid - 1) / kGrid; }

}  // namespace

void OutlineRuns::begin(uint32_t height, uint32_t width) {
  if (uint64_t{height} * width > kMostPixels) {
    throw Error(ErrorKind::kLimit,
                "outlines are drawn in pictures of 2^32 pixels at most. Found: " +
                    std::to_string(width) + "x" + std::to_string(height) + ".");
  }
  height_ = height;
  width_ = width;
  sides_.clear();
}

void OutlineRuns::add_change(int column, int y) {
  const double at = (y + .5) / kGrid - .5;
  const double row = std::ceil(std::clamp(at, 0.0, static_cast<double>(height_)));
  if (changes_.size() == kMostChanges) {
    throw Error(ErrorKind::kLimit, "the outline of an object crosses more than " +
                                       std::to_string(kMostChanges) + " columns of pixels.");
  }
  changes_.push_back(static_cast<uint64_t>(column) * height_ + static_cast<uint64_t>(row));
}

// A side that is at least as wide as high: one point of the grid in each of its columns, the first
// at x, y.
void OutlineRuns::add_flat(int x, int y, double slope, int length) {
  const auto at = [&](int step) { return static_cast<int>(y + slope * step + .5); };
  const int last = std::min((x + length - 1 - kMiddle) / kGrid, static_cast<int>(width_) - 1);
  if (x + length - 1 < kMiddle) return;
  for (int column = first_column(x); column <= last; ++column) {
    const int step = kGrid * column + kMiddle - x;
    add_change(column, std::min(at(step), at(step + 1)));
  }
}

// A higher one: a point in each of its rows.
void OutlineRuns::add_steep(int x, int y, double slope, int length) {
  const auto at = [&](int step) { return static_cast<int>(x + slope * step + .5); };
  const int low = std::min(at(0), at(length)), high = std::max(at(0), at(length));
  if (high - 1 < kMiddle) return;
  const int last = std::min((high - 1 - kMiddle) / kGrid, static_cast<int>(width_) - 1);
  for (int column = first_column(low); column <= last; ++column) {
    // The last step before the side has passed from one of the points to the other.
    const int point = kGrid * column + kMiddle;
    const auto before = [&](int step) { return slope > 0 ? at(step) <= point : at(step) > point; };
    int step = static_cast<int>((point + .5 - x) / slope);
    step = std::clamp(step, 0, length - 1);
    while (step > 0 && !before(step)) --step;
    while (step + 1 < length && before(step + 1)) ++step;
    add_change(column, y + step);
  }
}

void OutlineRuns::add_side(int from_x, int from_y, int to_x, int to_y) {
  const int dx = std::abs(to_x - from_x), dy = std::abs(to_y - from_y);
  const bool flat = dx >= dy;
  if (dx == 0) return;  // it passes no middle
  if (flat ? from_x > to_x : from_y > to_y) {
    std::swap(from_x, to_x);
    std::swap(from_y, to_y);
  }
  if (flat) {
    add_flat(from_x, from_y, static_cast<double>(to_y - from_y) / dx, dx);
  } else {
    add_steep(from_x, from_y, static_cast<double>(to_x - from_x) / dy, dy);
  }
}

void OutlineRuns::add(std::span<const double> xy) {
  changes_.clear();
  const size_t corners = xy.size() / 2;
  if (corners == 0) return;
  const int first_x = on_grid(xy[0]), first_y = on_grid(xy[1]);
  int x = first_x, y = first_y;
  for (size_t i = 1; i <= corners; ++i) {
    const int next_x = i == corners ? first_x : on_grid(xy[2 * i]);
    const int next_y = i == corners ? first_y : on_grid(xy[2 * i + 1]);
    add_side(x, y, next_x, next_y);
    x = next_x;
    y = next_y;
  }
  std::sort(changes_.begin(), changes_.end());
  const uint64_t end = uint64_t{height_} * width_;
  bool inside = false;
  for (size_t i = 0; i < changes_.size() && changes_[i] < end;) {
    size_t next = i;
    while (next < changes_.size() && changes_[next] == changes_[i]) ++next;
    if ((next - i) % 2 != 0) {
      inside = !inside;
      sides_.push_back(2 * changes_[i] + (inside ? 0 : 1));
    }
    i = next;
  }
  if (inside) sides_.push_back(2 * end + 1);
}

void OutlineRuns::ends(RunEnds& to) {
  to.clear();
  std::sort(sides_.begin(), sides_.end());
  uint32_t within = 0;  // outlines
  for (const uint64_t side : sides_) {
    const uint64_t at = side / 2;
    const bool was = within > 0;
    within += side % 2 == 0 ? 1 : -1;
    if (was != (within > 0)) to.push_back(at);
  }
  const uint64_t end = uint64_t{height_} * width_;
  if (to.empty() || to.back() != end) to.push_back(end);
}

}  // namespace fastload
