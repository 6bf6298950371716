// Warps that move pixels along one axis only, by parts of a pixel: shears and shifts. What a row
// shows is of one row of the source (along x), or what a column shows of one column (along y), and
// the fraction is the same all along it, but for how Pillow's sums round. So each value is a sum of
// contiguous bytes with fixed weights: it is taken in float, and where it is nearer to a whole
// number than its error, the value is computed plainly. V names the instruction set:
//   V::kLanes             values at once; V::Bytes has as many, V::Floats, too
//   V::bytes, V::floats, V::all   from memory, from bytes or memory, of one
//   V::sum(a, b, c)       a * b + c
//   V::close(sums, by)    a mask: which are nearer to a whole number than that
//   V::unequal(bytes)     a mask: which are not 0
//   V::truncated(sums, to)              as bytes
#pragma once

#include <cmath>
#include <cstring>

#include "transform/pixels/warp_kernels.h"
#include "transform/pixels/warp_pixel.h"

namespace fastload {
namespace {  // each file has its own, compiled for its instruction set

// Sums are below 512 and rounded four times, to 2^-16; four weights of bytes are rounded to 2^-25.
// That makes 9.2e-5. Positions below 2^21 are rounded to 2^-32, the weights' slopes are below
// 14 * 255: another 4e-6. kAbove is more. Sums are taken that much too high, so that those of equal
// bytes, whose weights' sum is not quite 1, are not below that byte; between kClose below and above
// a whole number lies whatever may be on its other side.
constexpr float kAbove = 0x1p-13F;
constexpr float kClose = 2 * kAbove;
constexpr double kFarthest = 0x1p20;
// From here to a whole number, all pixels of a row (or column) have the same neighbours.
constexpr double kApart = 0x1p-18;

enum class Axis : uint8_t { kNone, kX, kY };

// Whether all of `count` positions step * (i + 0.5) + shift have fractions that sums can be
// taken with. Shifts by eighths are left to others: too many sums of theirs are whole.
inline bool has_fractions(double step, double shift, int count) {
  if (!(std::abs(step) * count + std::abs(shift) < kFarthest) || count >= kFarthest) return false;
  if (step == 0.0) {
    shift *= 8.0;
    count = 1;
  }
  for (int i = 0; i < count; ++i) {
    const double at = step * (i + 0.5) + shift;
    const double part = at - std::floor(at);
    if (part < kApart || part > 1.0 - kApart) return false;
  }
  return true;
}

// The only axis along which a motion moves, if sums do for it.
inline Axis axis_of(const Motion& motion, const Picture& picture) {
  const auto& a = motion.a;
  if (motion.perspective || a[0] != 1.0 || a[4] != 1.0) return Axis::kNone;
  const bool keeps_rows = a[3] == 0.0 && a[5] == 0.0, keeps_columns = a[1] == 0.0 && a[2] == 0.0;
  if (keeps_rows && picture.width < kFarthest && has_fractions(a[1], a[2], picture.height)) {
    return Axis::kX;
  }
  if (keeps_columns && picture.height < kFarthest && has_fractions(a[3], a[5], picture.width)) {
    return Axis::kY;
  }
  return Axis::kNone;
}

// Of the neighbours of a place, by its fraction: one number, or a vector of them.
template <int kTaps, typename Number>
void weights_of(Number part, Number one, Number (&weights)[kTaps]) {
  const Number rest = one - part;
  if constexpr (kTaps == 2) {
    weights[0] = rest;
    weights[1] = part;
  } else {
    weights[0] = -part * rest * rest;
    weights[1] = one - part * part * (one + rest);
    weights[2] = one - rest * rest * (one + part);
    weights[3] = -part * part * rest;
  }
}

// Values [begin, end) of a row: tap(i, j) is where the i-th byte of value j lies, weight(i, j) is
// its weight, exact(j) is value j. Writes up to V::kLanes more.
template <typename V, int kTaps, typename Tap, typename Weight, typename Exact>
void sums(int begin, int end, const Tap& tap, const Weight& weight, const Exact& exact,
          uint8_t* to) {
  for (int j = begin; j < end; j += V::kLanes) {
    const auto first = V::bytes(tap(0, j));
    auto sum = V::sum(weight(0, j), V::floats(first), V::all(kAbove));
    auto unlike = first ^ first;
    for (int i = 1; i < kTaps; ++i) {
      const auto bytes = V::bytes(tap(i, j));
      sum = V::sum(weight(i, j), V::floats(bytes), sum);
      unlike |= bytes ^ first;
    }
    V::truncated(sum, to + j);
    // Of equal bytes comes that byte: its sum is close, and right.
    uint32_t doubt = V::close(sum, kClose) & V::unequal(unlike);
    if (end - j < V::kLanes) doubt &= (1U << (end - j)) - 1;
    for (; doubt != 0; doubt &= doubt - 1) {
      const int at = j + __builtin_ctz(doubt);
      to[at] = exact(at);
    }
  }
}

// Memory of a warp along an axis.
struct AlongScratch {
  struct Run {  // of columns that are moved alike
    int begin, columns, offset;
  };

  AlongScratch(uint8_t* memory, int width)
      : stride(line(width)),
        weights(reinterpret_cast<float*>(memory)),
        runs(reinterpret_cast<Run*>(memory + 16 * stride)),
        fill(memory + 16 * stride + sizeof(Run) * static_cast<size_t>(width)),
        lines(fill + stride) {}

  // A row of the picture, four pixels, and what vectors read and write behind.
  static size_t line(int width) {
    return (size_t{3} * (static_cast<size_t>(width) + 4) + 127) / 64 * 64;
  }
  static size_t bytes(int width) {
    return 21 * line(width) + sizeof(Run) * static_cast<size_t>(width);
  }

  size_t stride;   // of `weights` in floats, of `lines` in bytes
  float* weights;  // of each byte of a row: four lines
  Run* runs;
  uint8_t* fill;
  uint8_t* lines;  // four
};

// Moves `count` over the pixels of a row to how many stand before a place: those that `before`
// says so of.
template <typename Before>
void walk(int& count, int width, const Before& before) {
  while (count < width && before(count)) ++count;
  while (count > 0 && !before(count - 1)) --count;
}

template <typename V, int kTaps>
class Along {
 public:
  Along(const Picture& from, const Warp& warp, uint8_t* memory, uint8_t* to)
      : from_(from), motion_(warp.motion), memory_(memory, from.width), to_(to) {
    for (size_t i = 0; i < row_bytes(); ++i) memory_.fill[i] = warp.fill[i % 3];
  }

  void x() {
    const auto& a = motion_.a;
    uint8_t* const line = memory_.lines;
    for (int y = 0; y < from_.height; ++y) {
      const double at = a[1] * (y + 0.5) + a[2];
      const int whole = static_cast<int>(std::floor(at));
      double weights[kTaps];
      weights_of<kTaps>(at - whole, 1.0, weights);
      typename V::Floats same[kTaps];
      for (int i = 0; i < kTaps; ++i) same[i] = V::all(static_cast<float>(weights[i]));
      walk(begin_, from_.width, [&](int x) { return source_of(motion_, x, y).x < 0.0; });
      walk(end_, from_.width, [&](int x) { return source_of(motion_, x, y).x < from_.width; });
      if (begin_ < end_) with_border(row(y), line);
      // Two pixels of border; the first tap is kFirst pixels from the one at `whole`.
      const int first = 3 * (2 + whole + kFirst);
      values(
          y, [&](int i, int j) { return line + (first + 3 * i + j); },
          [&](int i, int) { return same[i]; });
    }
  }

  void y() {
    const bool falls = motion_.a[3] < 0.0;
    const int runs = find_runs();
    const auto line = [&](int y) {  // four of them are there
      return memory_.lines + memory_.stride * static_cast<size_t>((y + 4) % 4);
    };
    for (int y = kFirst; y < kFirst + kTaps - 1; ++y) gather(y, runs, line(y));
    for (int y = 0; y < from_.height; ++y) {
      const int last = y + kFirst + kTaps - 1;
      gather(last, runs, line(last));
      const auto above = [&](int x) { return source_of(motion_, x, y).y < 0.0; };
      const auto within = [&](int x) { return source_of(motion_, x, y).y < from_.height; };
      const auto before = [&](int x) { return falls ? !within(x) : above(x); };
      const auto until = [&](int x) { return falls ? !above(x) : within(x); };
      walk(begin_, from_.width, before);
      walk(end_, from_.width, until);
      const uint8_t* lines[kTaps];
      const float* weights[kTaps];
      for (int i = 0; i < kTaps; ++i) {
        lines[i] = line(y + kFirst + i);
        weights[i] = memory_.weights + memory_.stride * static_cast<size_t>(i);
      }
      values(
          y, [&](int i, int j) { return lines[i] + j; },
          [&](int i, int j) { return V::floats(weights[i] + j); });
    }
  }

 private:
  static constexpr int kFirst = 1 - kTaps / 2;

  [[nodiscard]] size_t row_bytes() const { return size_t{3} * static_cast<size_t>(from_.width); }
  [[nodiscard]] const uint8_t* row(int y) const {
    return from_.pixels + row_bytes() * static_cast<size_t>(std::clamp(y, 0, from_.height - 1));
  }

  // A row with its first and last pixel twice more.
  void with_border(const uint8_t* from, uint8_t* to) const {
    const size_t bytes = row_bytes();
    for (size_t i = 0; i < 2; ++i) {
      std::memcpy(to + 3 * i, from, 3);
      std::memcpy(to + 6 + bytes + 3 * i, from + bytes - 3, 3);
    }
    std::memcpy(to + 6, from, bytes);
  }

  // The weights of columns, and which of them are moved alike; how many runs there are.
  int find_runs() {
    const auto& a = motion_.a;
    int count = 0;
    for (int x = 0; x < from_.width; ++x) {
      const double at = a[3] * (x + 0.5) + a[5];
      const int whole = static_cast<int>(std::floor(at));
      double weights[kTaps];
      weights_of<kTaps>(at - whole, 1.0, weights);
      for (size_t i = 0; i < kTaps; ++i) {
        std::fill_n(memory_.weights + memory_.stride * i + 3 * x, 3,
                    static_cast<float>(weights[i]));
      }
      if (count == 0 || memory_.runs[count - 1].offset != whole) {
        memory_.runs[count++] = {x, 0, whole};
      }
      ++memory_.runs[count - 1].columns;
    }
    return count;
  }

  // Row y of the picture whose columns have been moved by whole pixels.
  void gather(int y, int runs, uint8_t* to) const {
    constexpr size_t kShort = 32;  // what runs write behind them, others write over
    for (int i = 0; i < runs; ++i) {
      const auto [begin, columns, offset] = memory_.runs[i];
      const size_t bytes = size_t{3} * static_cast<size_t>(columns);
      const uint8_t* const from = row(y + offset) + 3 * begin;
      std::memcpy(to + 3 * begin, from, kShort);
      if (bytes > kShort) std::memcpy(to + 3 * begin, from, bytes);
    }
  }

  // Row y, by sums() from begin_ to end_.
  template <typename Tap, typename Weight>
  void values(int y, const Tap& tap, const Weight& weight) const {
    uint8_t* const to = to_ + row_bytes() * static_cast<size_t>(y);
    const int begin = std::min(begin_, end_);
    const auto exact = [&](int j) {
      return Neighbours<kTaps>(from_, between_pixels(source_of(motion_, j / 3, y))).value(j % 3);
    };
    sums<V, kTaps>(3 * begin, 3 * end_, tap, weight, exact, to);
    std::memcpy(to, memory_.fill, size_t{3} * static_cast<size_t>(begin));
    std::memcpy(to + 3 * end_, memory_.fill, size_t{3} * static_cast<size_t>(from_.width - end_));
  }

  const Picture& from_;
  const Motion& motion_;
  const AlongScratch memory_;
  uint8_t* const to_;
  int begin_ = 0, end_ = 0;  // of the pixels of a row that are not filled
};

// Whether it was such a warp, and is done.
template <typename V>
bool warp_along(const Picture& from, const Warp& warp, uint8_t* memory, uint8_t* to) {
  const Axis axis = axis_of(warp.motion, from);
  const auto run = [&](auto along) { axis == Axis::kX ? along.x() : along.y(); };
  if (axis == Axis::kNone) return false;
  if (warp.filter == WarpFilter::kBilinear) {
    run(Along<V, 2>(from, warp, memory, to));
  } else {
    run(Along<V, 4>(from, warp, memory, to));
  }
  return true;
}

}  // namespace
}  // namespace fastload
