#include "transform/pixels/warp.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "transform/pixels/warp_kernels.h"
#include "transform/pixels/warp_pixel.h"

namespace fastload {
namespace {

// Column or row of a position; -1: outside of the `size` from `begin` on.
int place_of(double at, int begin, int size) {
  return at >= begin && at < begin + size ? static_cast<int>(at) : -1;
}

template <size_t kSize>
void copy_pixel(const uint8_t* from, size_t size, uint8_t* to) {
  std::memcpy(to, from, kSize == 0 ? size : kSize);
}

// The pixels of a part of a picture, row after row.
template <typename Byte>
struct Part {
  Part(Byte* first, int wide, int high)
      : pixels(first), width(wide), height(high), row(static_cast<size_t>(wide)) {}
  Part(Byte* first, const Rect& part, size_t stride)
      : pixels(first), x(part.x), y(part.y), width(part.width), height(part.height), row(stride) {}
  Byte* pixels;
  int x = 0, y = 0;
  int width, height;
  size_t row;  // pixels from one to the next

  [[nodiscard]] int right() const { return x + width; }
  [[nodiscard]] int bottom() const { return y + height; }
  [[nodiscard]] Byte* at(int column, int line, size_t size) const {
    return pixels + size * (static_cast<size_t>(line - y) * row + static_cast<size_t>(column - x));
  }
};
using Area = Part<const uint8_t>;
using MadeArea = Part<uint8_t>;

// The first columns or rows, where Pillow's ImagingScaleAffine adds them up; -1: outside.
std::vector<int> added_up(double step, double shift, int count, int begin, int size) {
  std::vector<int> places(static_cast<size_t>(count));
  double at = shift + step * 0.5;
  for (int& place : places) {
    place = place_of(at, begin, size);
    at += step;
  }
  return places;
}

// Pictures by the nearest pixel, of kSize bytes (0: of `size`). Pixels from outside stay as they
// are.
template <size_t kSize>
class Nearest {
 public:
  // Of pictures of width x height pixels `to` is a part.
  Nearest(const Motion& motion, size_t size, const Area& from, const MadeArea& to, int width,
          int height)
      : a_(motion.a), size_(size), from_(from), to_(to), width_(width), height_(height) {}

  // Neither turned nor sheared. Pillow's ImagingScaleAffine: columns and rows by adding up.
  // `reversed(from, count, to)` makes a row of what follows each other backwards.
  template <typename Reversed>
  void scale(Reversed&& reversed) {
    const std::vector<int> columns = added_up(a_[0], a_[2], to_.right(), from_.x, from_.width);
    const auto inside = [](int column) { return column >= 0; };
    const auto first = std::find_if(columns.begin() + to_.x, columns.end(), inside);
    if (first == columns.end()) return;
    const auto last = std::find_if(columns.rbegin(), columns.rend(), inside).base();
    const int begin = static_cast<int>(first - columns.begin());
    const int end = static_cast<int>(last - columns.begin());
    const auto steps = [&](int step) {
      return std::adjacent_find(first, last, [&](int a, int b) { return b != a + step; }) == last;
    };
    const bool forwards = steps(1), backwards = steps(-1);
    const std::vector<int> rows = added_up(a_[4], a_[5], to_.bottom(), from_.y, from_.height);
    for (int y = to_.y; y < to_.bottom(); ++y) {
      if (rows[y] < 0) continue;
      if (forwards) {
        std::memcpy(out(begin, y), in(*first, rows[y]), size() * static_cast<size_t>(end - begin));
      } else if (backwards) {
        reversed(in(columns[end - 1], rows[y]), end - begin, out(begin, y));
      } else {
        for (int x = begin; x < end; ++x) copy(columns[x], rows[y], x, y);
      }
    }
  }

  void reversed_row(const uint8_t* from, int count, uint8_t* to) {
    for (int i = count - 1; i >= 0; --i, to += size()) {
      copy_pixel<kSize>(from + size() * static_cast<size_t>(i), size_, to);
    }
  }

  // Pillow's affine_fixed: 16.16 fixed point. `row(x, y, dx, dy, to)` makes one.
  template <typename Row>
  void fixed(Row&& row) {
    uint32_t x = fix(a_[2] + a_[0] * 0.5 + a_[1] * 0.5);
    uint32_t y = fix(a_[5] + a_[3] * 0.5 + a_[4] * 0.5);
    const uint32_t dx = fix(a_[0]), dy = fix(a_[3]);
    const auto left = static_cast<uint32_t>(to_.x), top = static_cast<uint32_t>(to_.y);
    x += left * dx + top * fix(a_[1]);
    y += left * dy + top * fix(a_[4]);
    for (int i = to_.y; i < to_.bottom(); ++i, x += fix(a_[1]), y += fix(a_[4])) {
      if (dx == 0x10000 && dy == 0) {
        shift((static_cast<int32_t>(x) >> 16) - to_.x, static_cast<int32_t>(y) >> 16, i);
      } else {
        row(x, y, dx, dy, out(to_.x, i));
      }
    }
  }

  void fixed_row(uint32_t x, uint32_t y, uint32_t dx, uint32_t dy, uint8_t* to) {
    for (int i = 0; i < to_.width; ++i, to += size(), x += dx, y += dy) {
      const int column = static_cast<int32_t>(x) >> 16;
      const int row = static_cast<int32_t>(y) >> 16;
      if (column < from_.x || column >= from_.right()) continue;
      if (row < from_.y || row >= from_.bottom()) continue;
      copy_pixel<kSize>(in(column, row), size_, to);
    }
  }

  // Whether the corners fit into fixed point.
  [[nodiscard]] bool fits() const {
    const auto fits = [&](int x, int y) {
      return std::abs(x * a_[0] + y * a_[1] + a_[2]) < 32768.0 &&
             std::abs(x * a_[3] + y * a_[4] + a_[5]) < 32768.0;
    };
    return fits(0, 0) && fits(width_, height_) && fits(0, height_) && fits(width_, 0);
  }

  // Pillow's affine motion of what does not fit into fixed point.
  void floating() {
    double row_x = a_[2] + a_[1] * 0.5 + a_[0] * 0.5;
    double row_y = a_[5] + a_[4] * 0.5 + a_[3] * 0.5;
    for (int y = 0; y < to_.bottom(); ++y, row_x += a_[1], row_y += a_[4]) {
      double from_x = row_x, from_y = row_y;
      for (int x = 0; x < to_.right(); ++x, from_x += a_[0], from_y += a_[3]) {
        if (x >= to_.x && y >= to_.y) copy(from_x, from_y, x, y);
      }
    }
  }

  // Pillow's ImagingGenericTransform.
  void generic(bool perspective) {
    for (int y = to_.y; y < to_.bottom(); ++y) {
      const double at_y = y + 0.5;
      for (int x = to_.x; x < to_.right(); ++x) {
        const double at_x = x + 0.5;
        double from_x = a_[0] * at_x + a_[1] * at_y + a_[2];
        double from_y = a_[3] * at_x + a_[4] * at_y + a_[5];
        if (perspective) {
          const double w = a_[6] * at_x + a_[7] * at_y + 1.0;
          from_x /= w;
          from_y /= w;
        }
        copy(from_x, from_y, x, y);
      }
    }
  }

 private:
  [[nodiscard]] size_t size() const { return kSize == 0 ? size_ : kSize; }
  [[nodiscard]] const uint8_t* in(int x, int y) const { return from_.at(x, y, size()); }
  [[nodiscard]] uint8_t* out(int x, int y) const { return to_.at(x, y, size()); }
  void copy(double at_x, double at_y, int x, int y) {
    copy(place_of(at_x, from_.x, from_.width), place_of(at_y, from_.y, from_.height), x, y);
  }
  void copy(int from_x, int from_y, int x, int y) {
    if (from_x >= 0 && from_y >= 0) copy_pixel<kSize>(in(from_x, from_y), size_, out(x, y));
  }

  static uint32_t fix(double value) {
    return static_cast<uint32_t>(static_cast<int64_t>(std::floor(value * 65536.0 + 0.5)));
  }

  // Row y shows row `from_y`, whose column `from_x` is its first.
  void shift(int from_x, int from_y, int y) {
    const int begin = std::max(to_.x, from_.x - from_x);
    const int end = std::min(to_.right(), from_.right() - from_x);
    if (from_y < from_.y || from_y >= from_.bottom() || begin >= end) return;
    std::memcpy(out(begin, y), in(from_x + begin, from_y),
                size() * static_cast<size_t>(end - begin));
  }

  const std::array<double, 8>& a_;
  const size_t size_;
  const Area from_;
  const MadeArea to_;
  const int width_, height_;
};

template <size_t kSize, typename Row, typename Reversed>
void run(Nearest<kSize>& nearest, const Motion& motion, bool wide, Row&& row, Reversed&& reversed) {
  if (motion.perspective || wide) return nearest.generic(motion.perspective);
  if (motion.a[1] == 0.0 && motion.a[3] == 0.0) return nearest.scale(reversed);
  if (nearest.fits()) return nearest.fixed(row);
  nearest.floating();
}

template <size_t kSize>
void move(const Motion& motion, bool wide, size_t size, const Area& from, const MadeArea& to) {
  Nearest<kSize> nearest(motion, size, from, to, to.width, to.height);
  run(
      nearest, motion, wide, [&](auto... at) { nearest.fixed_row(at...); },
      [&](auto... at) { nearest.reversed_row(at...); });
}

void fill_with(const uint8_t* pixel, size_t size, size_t count, uint8_t* to) {
  if (std::all_of(pixel, pixel + size, [&](uint8_t byte) { return byte == *pixel; })) {
    std::memset(to, *pixel, size * count);
    return;
  }
  std::memcpy(to, pixel, size);
  for (size_t done = 1; done < count; done *= 2) {
    std::memcpy(to + done * size, to, std::min(done, count - done) * size);
  }
}

size_t area(int width, int height) {
  return static_cast<size_t>(width) * static_cast<size_t>(height);
}

// No pixel falls between others.
bool is_whole_shift(const Motion& motion) {
  const auto& a = motion.a;
  const auto whole = [](double shift) {
    return std::abs(shift) < 1e9 && std::trunc(shift) == shift;
  };
  return !motion.perspective && a[0] == 1.0 && a[1] == 0.0 && whole(a[2]) && a[3] == 0.0 &&
         a[4] == 1.0 && whole(a[5]);
}

template <int kTaps>
void all_plainly(const Picture& from, const Warp& warp, const Picture& made) {
  uint8_t* to = made.pixels;
  for (int y = 0; y < made.height; ++y) {
    for (int x = 0; x < made.width; ++x, to += 3) {
      const At at = source_of(warp.motion, x, y);
      if (!is_inside(at, from)) {
        std::memcpy(to, warp.fill.data(), 3);
        continue;
      }
      const Neighbours<kTaps> around(from, between_pixels(at));
      for (int c = 0; c < 3; ++c) to[c] = around.value(c);
    }
  }
}

}  // namespace

void move_nearest(const Motion& motion, bool wide, size_t pixel_bytes, int width, int height,
                  const uint8_t* from, const uint8_t* fill, uint8_t* to) {
  move_nearest_into(motion, wide, pixel_bytes, width, height, from, fill, width, height, to);
}

void move_nearest_into(const Motion& motion, bool wide, size_t pixel_bytes, int from_width,
                       int from_height, const uint8_t* from, const uint8_t* fill, int width,
                       int height, uint8_t* to) {
  fill_with(fill, pixel_bytes, area(width, height), to);
  const Area source(from, from_width, from_height);
  const MadeArea made(to, width, height);
  switch (pixel_bytes) {
    case 1:
      return move<1>(motion, wide, pixel_bytes, source, made);
    case 2:
      return move<2>(motion, wide, pixel_bytes, source, made);
    case 3:
      return move<3>(motion, wide, pixel_bytes, source, made);
    default:
      return move<0>(motion, wide, pixel_bytes, source, made);
  }
}

void move_nearest_part(const Motion& motion, const Rect& known, const uint8_t* from, size_t stride,
                       int width, int height, const Rect& wanted, uint8_t* to) {
  const auto row = static_cast<size_t>(wanted.width);
  std::memset(to, 0, row * static_cast<size_t>(wanted.height));
  Nearest<1> nearest(motion, 1, {from, known, stride}, {to, wanted, row}, width, height);
  run(
      nearest, motion, false, [&](auto... at) { nearest.fixed_row(at...); },
      [&](auto... at) { nearest.reversed_row(at...); });
}

bool nearest_lines(const Motion& motion, int from_width, int from_height, int width, int height,
                   std::vector<int>& columns, std::vector<int>& rows) {
  if (motion.perspective || motion.a[1] != 0.0 || motion.a[3] != 0.0) return false;
  columns = added_up(motion.a[0], motion.a[2], width, 0, from_width);
  rows = added_up(motion.a[4], motion.a[5], height, 0, from_height);
  return true;
}

void warp_plainly(const Picture& from, const Warp& warp, const Picture& to) {
  if (warp.filter == WarpFilter::kBilinear) return all_plainly<2>(from, warp, to);
  all_plainly<4>(from, warp, to);
}

void warp(const Warp& how, Canvas& canvas) {
  if (how.motion.is_identity()) return;
  const Picture from = canvas.picture();
  warp_into(how, from, [&](size_t bytes) { return canvas.scratch(bytes); },
            {canvas.spare(), from.width, from.height});
  canvas.swap();
}

namespace {

// Whether it is a flip that shows the whole picture: the fill would take a third of its time.
bool is_mirror(const Motion& motion, const Picture& from, const Picture& to) {
  std::vector<int> columns, rows;
  const auto all_inside = [](const std::vector<int>& places) {
    return std::ranges::all_of(places, [](int place) { return place >= 0; });
  };
  return (motion.a[0] < 0.0 || motion.a[4] < 0.0) &&
         nearest_lines(motion, from.width, from.height, to.width, to.height, columns, rows) &&
         all_inside(columns) && all_inside(rows);
}

}  // namespace

void warp_into(const Warp& how, const Picture& from, const std::function<uint8_t*(size_t)>& scratch,
               const Picture& to) {
  const bool small = static_cast<int64_t>(area(from.width, from.height)) <= kMostWarped;
  const SimdLevel level = simd_level();
  if (how.filter != WarpFilter::kNearest && !is_whole_shift(how.motion)) {
    if (!small) return warp_plainly(from, how, to);
    uint8_t* const memory = scratch(warp_scratch(from, to));
    return FASTLOAD_KERNEL_AT(level, warp_filtered)(from, how, memory, to);
  }
  const Area source(from.pixels, from.width, from.height);
  const MadeArea made(to.pixels, to.width, to.height);
  if (!is_mirror(how.motion, from, to)) {
    fill_with(how.fill.data(), 3, area(to.width, to.height), to.pixels);
  }
  if (!small) return move<3>(how.motion, false, 3, source, made);
  Nearest<3> nearest(how.motion, 3, source, made, to.width, to.height);
  run(
      nearest, how.motion, false,
      [&](uint32_t x, uint32_t y, uint32_t dx, uint32_t dy, uint8_t* row) {
        FASTLOAD_KERNEL_AT(level, warp_nearest)(from, x, y, dx, dy, to.width, row);
      },
      FASTLOAD_KERNEL_AT(level, warp_reversed));
}

}  // namespace fastload
