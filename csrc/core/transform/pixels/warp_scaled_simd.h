// Bilinear warps that neither turn nor shear nor mirror rows. All rows show the same columns with
// the same fractions, so these are found once; a row of the source is brought to the columns once,
// however many rows show it. Values are taken in float, and where one is nearer to a whole number
// than its error, it is computed plainly. V names the instruction set, beside what
// warp_along_simd.h wants of it:
//   V::kPixels            pixels of three bytes in V::kLanes
//   V::kWindow            bytes that V::neighbours chooses from
//   V::neighbours(from, valid, order)  order's bytes of the window at `from`, of which so many may
//                         be read: V::kLanes for each side
//   V::apart(values, differences)      values that come from unequal ones, and are whole, a little
//                         above that
//   V::unlike(values, differences)     a mask: which are not whole, or whose difference is not 0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/vectors.h"
#include "transform/pixels/warp_along_simd.h"
#include "transform/pixels/warp_kernels.h"
#include "transform/pixels/warp_pixel.h"

namespace fastload {
namespace {  // each file has its own, compiled for its instruction set

// By which V::apart lifts values: so between rows equal whole numbers come from four equal bytes.
constexpr float kLifted = 0x1p-16F;
// As in warp_along_simd.h: a fraction is rounded to 2^-25, times 255, and each sum to 2^-17, along
// rows and down; what is lifted, and the last sum, rounded to 2^-16: 6.9e-5, below kAbove.

struct NeighbourBytes {
  __m128i left, right;
};

template <typename V>
class Scaled {
 public:
  static bool takes(const Warp& warp, const Picture& from, const Picture& to) {
    const auto& a = warp.motion.a;
    // So the neighbours of pixels that are taken at once lie in a window.
    const bool near = a[0] > 0.0 && 3 * (kSteps * a[0] + 3) < V::kWindow;
    const auto small = [](double value) { return std::abs(value) < kFarthest; };
    return warp.filter == WarpFilter::kBilinear && !warp.motion.perspective && a[1] == 0.0 &&
           a[3] == 0.0 && near && small(a[2]) && small(a[4] * to.height) && small(a[5]) &&
           small(to.width) && small(from.width) && small(from.height);
  }

  static size_t bytes(int width) {
    const size_t steps = static_cast<size_t>(width) / V::kPixels + 1;
    return 3 * line(width) * sizeof(float) + line(width) + steps * sizeof(Step);
  }

  Scaled(const Picture& from, const Warp& warp, uint8_t* memory, const Picture& to)
      : from_(from),
        motion_(warp.motion),
        to_(to),
        parts_(reinterpret_cast<float*>(memory)),
        lines_{parts_ + line(to.width), parts_ + 2 * line(to.width)},
        fill_(memory + 3 * line(to.width) * sizeof(float)),
        steps_(reinterpret_cast<Step*>(fill_ + line(to.width))) {
    for (size_t i = 0; i < bytes_of(to.width); ++i) fill_[i] = warp.fill[i % 3];
  }

  void run() {
    find_columns();
    for (int y = 0; y < to_.height; ++y) {
      uint8_t* const to = to_.pixels + bytes_of(to_.width) * static_cast<size_t>(y);
      const At at = source_of(motion_, 0, y);
      const bool inside = at.y >= 0.0 && at.y < from_.height && begin_ < end_;
      if (inside) down(y, between_pixels(at), to + bytes_of(begin_));
      const int begin = inside ? begin_ : 0, end = inside ? end_ : 0;
      std::memcpy(to, fill_, bytes_of(begin));
      std::memcpy(to + bytes_of(end), fill_, bytes_of(to_.width - end));
    }
  }

 private:
  static constexpr int kSteps = V::kPixels - 1;

  // Pixels that are taken at once.
  struct Step {
    size_t first;  // byte of the row
    size_t valid;  // bytes from there on that are asked for
    uint8_t order[2 * V::kLanes];
  };

  static size_t bytes_of(int pixels) { return size_t{3} * static_cast<size_t>(pixels); }
  // Values of a row, and what vectors write behind.
  static size_t line(int width) { return (bytes_of(width) + 2 * V::kLanes + 63) / 64 * 64; }

  // Which pixels of a row are inside; their neighbours and fractions.
  void find_columns() {
    const auto inside = [&](int x) {
      const double at = source_of(motion_, x, 0).x;
      return at >= 0.0 && at < from_.width;
    };
    while (begin_ < to_.width && !inside(begin_)) ++begin_;
    end_ = begin_;
    for (; end_ < to_.width && inside(end_); ++end_) {
      const Between place = between_pixels(source_of(motion_, end_, 0));
      std::fill_n(parts_ + bytes_of(end_ - begin_), 3, static_cast<float>(place.dx));
      const int index = (end_ - begin_) % V::kPixels;
      const int last = from_.width - 1;
      const size_t left = bytes_of(std::clamp(place.x, 0, last));
      const size_t right = place.dx == 0.0 ? left : bytes_of(std::clamp(place.x + 1, 0, last));
      Step& step = steps_[(end_ - begin_) / V::kPixels];
      if (index == 0) step = {left, 0, {}};
      for (size_t c = 0; c < 3; ++c) {
        const size_t lane = 3 * static_cast<size_t>(index) + c;
        step.order[lane] = static_cast<uint8_t>(left - step.first + c);
        step.order[V::kLanes + lane] = static_cast<uint8_t>(right - step.first + c);
      }
      step.valid = right - step.first + 3;
    }
  }

  // Which of the two lines has a row of the source, brought to the columns; not that of `other`.
  const float* line_of(int row, int other) {
    for (size_t i = 0; i < 2; ++i) {
      if (rows_[i] == row) return lines_[i];
    }
    const size_t free = rows_[0] == other ? 1 : 0;
    rows_[free] = row;
    const uint8_t* const from = from_.pixels + bytes_of(from_.width) * static_cast<size_t>(row);
    float* to = lines_[free];
    const float* parts = parts_;
    const int count = (end_ - begin_ + kSteps) / V::kPixels;
    for (int i = 0; i < count; ++i, to += 3 * V::kPixels, parts += 3 * V::kPixels) {
      const NeighbourBytes bytes =
          V::neighbours(from + steps_[i].first, steps_[i].valid, steps_[i].order);
      const auto left = V::floats(bytes.left), difference = V::floats(bytes.right) - left;
      const auto value = V::sum(difference, V::floats(parts), left);
      V::store(V::apart(value, difference), to);
    }
    return lines_[free];
  }

  // The pixels that are inside of row y.
  void down(int y, const Between& place, uint8_t* to) {
    const int last = from_.height - 1;
    const int above = std::clamp(place.y, 0, last);
    const int below = place.dy == 0.0 ? above : std::clamp(place.y + 1, 0, last);
    const float* const top = line_of(above, below);
    const float* const bottom = line_of(below, above);
    const auto part = V::all(static_cast<float>(place.dy));
    const int count = 3 * (end_ - begin_);
    for (int j = 0; j < count; j += V::kLanes) {
      const auto values = V::floats(top + j), difference = V::floats(bottom + j) - values;
      const auto sum = V::sum(difference, part, values) + V::all(kAbove);
      V::truncated(sum, to + j);
      uint32_t doubt = V::close(sum, kClose);
      if (doubt == 0) continue;
      doubt &= V::unlike(values, difference);
      if (count - j < V::kLanes) doubt &= (1U << (count - j)) - 1;
      for (; doubt != 0; doubt &= doubt - 1) {
        const int value = j + __builtin_ctz(doubt);
        const At at = source_of(motion_, begin_ + value / 3, y);
        to[value] = Neighbours<2>(from_, between_pixels(at)).value(value % 3);
      }
    }
  }

  const Picture& from_;
  const Motion& motion_;
  const Picture to_;
  float* const parts_;      // of each value
  float* const lines_[2];   // rows of the source
  int rows_[2] = {-1, -1};  // which
  uint8_t* const fill_;
  Step* const steps_;
  int begin_ = 0, end_ = 0;  // of the pixels of a row that are inside
};

}  // namespace
}  // namespace fastload
