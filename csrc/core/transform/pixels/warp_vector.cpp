// Bilinear and bicubic warps in float: each value is a sum of bytes by their weights, and where it
// is nearer to a whole number than its error, it is computed plainly. So it does not matter whether
// a level rounds products before they are added up: the bounds below count such roundings.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "transform/pixels/warp_kernels.h"
#include "transform/pixels/warp_pixel.h"
// Behind the others:
#include "base/highway.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

constexpr hn::ScalableTag<float> kFloats{};
constexpr hn::RebindToSigned<hn::ScalableTag<float>> kWords{};
constexpr hn::Rebind<uint8_t, hn::ScalableTag<float>> kBytes{};
constexpr hn::FixedTag<uint8_t, 16> kBlock{};
constexpr hn::FixedTag<float, 4> kFour{};
using Floats = hn::Vec<decltype(kFloats)>;
using Mask = hn::Mask<decltype(kFloats)>;
using Bytes = hn::Vec<decltype(kBytes)>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(kFloats));

Floats all(float value) { return hn::Set(kFloats, value); }
Floats floats(Bytes bytes) { return hn::ConvertTo(kFloats, hn::PromoteTo(kWords, bytes)); }
Floats floats(const uint8_t* from) { return floats(hn::LoadU(kBytes, from)); }

constexpr size_t bytes_of(int pixels) { return size_t{3} * static_cast<size_t>(pixels); }

// A part of the scratch memory, which then begins behind it.
template <typename T>
T* take(uint8_t*& memory, size_t count) {
  T* const part = reinterpret_cast<T*>(memory);
  memory += (count * sizeof(T) + 63) / 64 * 64;
  return part;
}

// Sums are below 512 and rounded four times, to 2^-16; four weights of bytes are rounded to 2^-25,
// their products to 2^-17 (two at most) and 2^-19. That makes 1.11e-4. Positions below 2^21 are
// rounded to 2^-32, the weights' slopes are below 14 * 255: another 4e-6. kAbove is more. Sums are
// taken so much too high: those of equal bytes, whose weights' sum is not quite 1, are not below
// that byte; between twice that below and above a whole number lies whatever may be beyond it.
constexpr float kAbove = 0x1p-13F;
constexpr double kFarthest = 0x1p20;

// The whole parts of sums, as bytes, and which sums are close to a whole number.
struct Whole {
  // `sums` are 1/2 too low, but for their error's `above`.
  template <int kTaps>
  static HWY_INLINE Whole of(Floats sums, float above) {
    constexpr float kNone = 0x1.8p23F;  // its last bit is 1
    Floats whole = hn::Add(sums, all(kNone));
    const Floats distance = hn::Abs(hn::Sub(sums, hn::Sub(whole, all(kNone))));
    if (kTaps == 4) whole = hn::Min(hn::Max(whole, all(kNone)), all(kNone + 255));
    const auto bits = hn::BitCast(hn::RebindToUnsigned<decltype(kWords)>(), whole);
#if HWY_TARGET == HWY_AVX3  // without the two constants of Highway's
    const Bytes bytes{_mm512_cvtepi32_epi8(bits.raw)};
#else
    const auto bytes = hn::TruncateTo(kBytes, bits);
#endif
    return {bytes, hn::Gt(distance, all(0.5F - 2 * above))};
  }

  Bytes bytes;
  Mask close;
};

// What is warped, and how its rows are written.
struct Rows {
  Rows(const Picture& source, const Warp& how, const Picture& made, uint8_t*& memory)
      : from(source), warp(how), to(made), fill(take<uint8_t>(memory, bytes_of(made.width))) {
    for (size_t i = 0; i < bytes_of(to.width); ++i) fill[i] = warp.fill[i % 3];
  }
  [[nodiscard]] At at(int x, int y) const { return source_of(warp.motion, x, y); }
  [[nodiscard]] uint8_t* at_row(int y) const {
    return to.pixels + bytes_of(to.width) * static_cast<size_t>(y);
  }

  // Row y: the fill but for pixels [begin, end), whose values j come from sum(j). Of those that are
  // close unlike(j) says which are of unequal bytes: from others comes that byte. If `often` it is
  // asked at once, as no branch would be foreseen.
  template <int kTaps, bool often, typename Sum, typename Unlike>
  HWY_INLINE void write(int y, int begin, int end, const Sum& sum, const Unlike& unlike) const {
    uint8_t* const row = at_row(y);
    for (int j = 3 * begin; j < 3 * end; j += kLanes) {
      const Whole whole = Whole::of<kTaps>(sum(j), kAbove);
      uint32_t doubt = often ? unlike(j) : 0;
      hn::StoreU(whole.bytes, kBytes, row + j);
      if (!often && hn::AllFalse(kFloats, whole.close)) continue;
      doubt = bits_of(kFloats, whole.close) & (often ? doubt : unlike(j));
      if (3 * end - j < kLanes) doubt &= (1U << (3 * end - j)) - 1;
      for (; doubt != 0; doubt &= doubt - 1) {
        const int k = j + std::countr_zero(doubt);
        row[k] = Neighbours<kTaps>(from, between_pixels(at(k / 3, y))).value(k % 3);
      }
    }
    surround(y, begin, end);
  }
  void surround(int y, int begin, int end) const {
    std::memcpy(at_row(y), fill, bytes_of(begin));
    std::memcpy(at_row(y) + bytes_of(end), fill, bytes_of(to.width - end));
  }

  const Picture from;
  const Warp& warp;
  const Picture to;
  uint8_t* const fill;  // a row
};

// Of the neighbours of a place, by its fraction: one number, or a vector of them.
template <typename Number>
void weights_of(Number part, Number one, Number (&weights)[2]) {
  weights[0] = one - part;
  weights[1] = part;
}
template <typename Number>
void weights_of(Number part, Number one, Number (&weights)[4]) {
  const Number rest = one - part, minus = (part - one) * part;
  weights[0] = minus * rest;
  weights[1] = one - part * part * (one + rest);
  weights[2] = one - rest * rest * (one + part);
  weights[3] = minus * part;
}

// ---- Along one axis ----
// By parts of a pixel: shears and shifts. What a row shows is of one row of the source (along x),
// or what a column shows of one column (along y), and the fraction is the same all along it, but
// for how Pillow's sums round. So each value is a sum of contiguous bytes with fixed weights.

enum class Axis : uint8_t { kNone, kX, kY };

// Whether all of `count` positions step * (i + 0.5) + shift have fractions that sums can be
// taken with. Shifts by eighths are left to others: too many sums of theirs are whole.
bool has_fractions(double step, double shift, int count) {
  // From here to a whole number, all pixels of a row (or column) have the same neighbours.
  constexpr double kApart = 0x1p-18;
  if (!(std::abs(step) * count + std::abs(shift) < kFarthest)) return false;
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
Axis axis_of(const Motion& motion, const Picture& from, const Picture& to) {
  const auto& a = motion.a;
  const int width = to.width, height = to.height;
  if (from.width != width || from.height != height) return Axis::kNone;
  if (motion.perspective || a[0] != 1.0 || a[4] != 1.0) return Axis::kNone;
  if (width >= kFarthest || height >= kFarthest) return Axis::kNone;
  if (a[3] == 0.0 && a[5] == 0.0 && has_fractions(a[1], a[2], height)) return Axis::kX;
  if (a[1] == 0.0 && a[2] == 0.0 && has_fractions(a[3], a[5], width)) return Axis::kY;
  return Axis::kNone;
}

// Moves `count` over the pixels of a row to how many stand before a place: those that `before`
// says so of.
template <typename Before>
void walk(int& count, int width, const Before& before) {
  while (count < width && before(count)) ++count;
  while (count > 0 && !before(count - 1)) --count;
}

template <int kTaps>
class Along {
 public:
  Along(const Rows& rows, uint8_t*& memory)
      : rows_(rows),
        width_(rows.to.width),
        stride_(bytes_of(width_ + 4) + 64),
        weights_(take<float>(memory, kTaps * stride_)),
        runs_(take<Run>(memory, static_cast<size_t>(width_))),
        lines_(take<uint8_t>(memory, kTaps * stride_)) {}

  void x() {
    for (int y = 0; y < rows_.to.height; ++y) {
      double weights[kTaps];
      const int whole = place_of(1, y, weights);
      Floats same[kTaps];
      for (int i = 0; i < kTaps; ++i) same[i] = all(static_cast<float>(weights[i]));
      walk(begin_, width_, [&](int x) { return rows_.at(x, y).x < 0.0; });
      walk(end_, width_, [&](int x) { return rows_.at(x, y).x < width_; });
      if (begin_ < end_) copy_with_border(pixel(rows_.from, 0, y));
      const uint8_t* const first = lines_ + ptrdiff_t{3} * (kBorder + whole + kFirst);
      write(
          y, [&](int i, int j) { return first + 3 * i + j; }, [&](int i, int) { return same[i]; });
    }
  }

  void y() {
    const bool falls = rows_.warp.motion.a[3] < 0.0;
    const int height = rows_.from.height, runs = find_runs();
    const auto line = [&](int y) { return lines_ + stride_ * ((y + kTaps) % kTaps); };
    for (int y = 1 - kTaps; y < height; ++y) {
      const int last = y + kFirst + kTaps - 1;
      gather(last, runs, line(last));
      if (y < 0) continue;
      const auto above = [&](int x) { return rows_.at(x, y).y < 0.0; };
      const auto within = [&](int x) { return rows_.at(x, y).y < height; };
      walk(begin_, width_, [&](int x) { return falls ? !within(x) : above(x); });
      walk(end_, width_, [&](int x) { return falls ? !above(x) : within(x); });
      const uint8_t* lines[kTaps];
      for (int i = 0; i < kTaps; ++i) lines[i] = line(y + kFirst + i);
      write(
          y, [&](int i, int j) { return lines[i] + j; },
          [&](int i, int j) { return hn::LoadU(kFloats, weights_ + stride_ * i + j); });
    }
  }

 private:
  struct Run {  // of columns that are moved alike
    int begin, columns, offset;
  };
  static constexpr int kFirst = 1 - kTaps / 2;
  static constexpr int kBorder = 2;

  // By how many whole pixels a row is moved (or a column: first 3), and the weights for the rest.
  int place_of(size_t first, int i, double (&weights)[kTaps]) const {
    const double at = rows_.warp.motion.a[first] * (i + 0.5) +
                      rows_.warp.motion.a[first == 1 ? 2 : 5];
    const int whole = static_cast<int>(std::floor(at));
    weights_of(at - whole, 1.0, weights);
    return whole;
  }

  // A row with its first and last pixel twice more.
  void copy_with_border(const uint8_t* from) {
    const size_t bytes = bytes_of(width_);
    for (size_t i = 0; i < 3 * kBorder; ++i) {
      lines_[i] = from[i % 3];
      lines_[3 * kBorder + bytes + i] = from[bytes - 3 + i % 3];
    }
    std::memcpy(lines_ + 3 * kBorder, from, bytes);
  }

  // The weights of columns, and which of them are moved alike; how many runs there are.
  int find_runs() {
    int count = 0;
    for (int x = 0; x < width_; ++x) {
      double weights[kTaps];
      const int whole = place_of(3, x, weights);
      for (size_t i = 0; i < kTaps; ++i) {
        std::fill_n(weights_ + stride_ * i + 3 * x, 3, static_cast<float>(weights[i]));
      }
      if (count == 0 || runs_[count - 1].offset != whole) runs_[count++] = {x, 0, whole};
      ++runs_[count - 1].columns;
    }
    return count;
  }

  // Row y of the picture whose columns have been moved by whole pixels.
  void gather(int y, int runs, uint8_t* to) const {
    constexpr size_t kShort = 32;  // what runs write behind them, others write over
    for (int i = 0; i < runs; ++i) {
      const auto [begin, columns, offset] = runs_[i];
      const uint8_t* const from = pixel(rows_.from, 0, y + offset) + 3 * begin;
      std::memcpy(to + 3 * begin, from, kShort);
      if (bytes_of(columns) > kShort) std::memcpy(to + 3 * begin, from, bytes_of(columns));
    }
  }

  // Row y: tap(i, j) is where the i-th byte of value j lies, weight(i, j) is its weight.
  template <typename Tap, typename Weight>
  HWY_INLINE void write(int y, const Tap& tap, const Weight& weight) const {
    const auto sum = [&](int j) {
      Floats sum = all(kAbove - 0.5F);
      for (int i = 0; i < kTaps; ++i) sum = hn::MulAdd(weight(i, j), floats(tap(i, j)), sum);
      return sum;
    };
    const auto unlike = [&](int j) {
      const auto first = hn::LoadU(kBytes, tap(0, j));
      auto different = hn::Zero(kBytes);
      for (int i = 1; i < kTaps; ++i) {
        different = hn::Or(different, hn::Xor(first, hn::LoadU(kBytes, tap(i, j))));
      }
      return bits_of(kBytes, hn::Ne(different, hn::Zero(kBytes)));
    };
    rows_.template write<kTaps, kTaps == 2>(y, std::min(begin_, end_), end_, sum, unlike);
  }

  const Rows& rows_;
  const int width_;
  const size_t stride_;      // values of a line, and what vectors read and write behind
  float* const weights_;     // of each byte of a row: a line for each tap
  Run* const runs_;
  uint8_t* const lines_;     // as many
  int begin_ = 0, end_ = 0;  // of the pixels of a row that are not filled
};

// ---- Scaled ----
// Bilinear warps that neither turn nor shear nor mirror rows. All rows show the same columns with
// the same fractions, so these are found once; a row of the source is brought to the columns once,
// however many rows show it.
// A fraction is rounded to 2^-25, times 255, and each product and sum to 2^-17, along rows and
// down; what is lifted, and the last sum, rounded to 2^-16: 8.4e-5, below kAbove.

// By which whole values that come from unequal ones are lifted: so between rows equal whole numbers
// come from four equal bytes.
constexpr float kLifted = 0x1p-16F;

Mask is_whole(Floats values) { return hn::Eq(values, hn::Round(values)); }

// The bytes of a window that `order` says.
#if HWY_TARGET == HWY_AVX3
constexpr hn::ScalableTag<uint8_t> kWindow{};
Floats chosen(hn::Vec<decltype(kWindow)> window, const uint8_t* order) {
  const __m512i places = _mm512_castsi128_si512(hn::LoadU(kBytes, order).raw);
  const __m512i bytes = _mm512_permutexvar_epi8(places, window.raw);
  return floats(Bytes{_mm512_castsi512_si128(bytes)});
}
#else
constexpr hn::FixedTag<uint8_t, 16> kWindow{};
Floats chosen(hn::Vec<decltype(kWindow)> window, const uint8_t* order) {
  return floats(hn::TableLookupBytes(window, hn::LoadU(kBytes, order)));
}
#endif

class Scaled {
 public:
  static bool takes(const Motion& motion) {
    const auto& a = motion.a;
    // So the neighbours of pixels that are taken at once lie in a window.
    const bool near = 3 * ((kPixels - 1) * a[0] + 3) < double{hn::MaxLanes(kWindow)};
    return !motion.perspective && a[0] > 0.0 && a[1] == 0.0 && a[3] == 0.0 && near;
  }

  Scaled(const Rows& rows, uint8_t*& memory)
      : rows_(rows),
        parts_(take<float>(memory, line(rows.to.width))),
        lines_{take<float>(memory, line(rows.to.width)), take<float>(memory, line(rows.to.width))},
        steps_(take<Step>(memory, static_cast<size_t>(rows.to.width / kPixels + 1))) {}

  void run() {
    find_columns();
    for (int y = 0; y < rows_.to.height; ++y) {
      const At at = rows_.at(0, y);
      const bool inside = at.y >= 0.0 && at.y < rows_.from.height && begin_ < end_;
      inside ? write(y, between_pixels(at)) : rows_.surround(y, 0, 0);
    }
  }

 private:
  static constexpr int kPixels = kLanes / 3;

  struct Step {    // of pixels that are taken at once
    size_t first;  // byte of the row
    uint8_t order[2 * kLanes];
  };

  // Values of a row, and what vectors write behind.
  static size_t line(int width) { return bytes_of(width) + 2 * kLanes; }

  // Which pixels of a row are inside; their neighbours and fractions.
  void find_columns() {
    const int width = rows_.to.width, last = rows_.from.width - 1;
    const auto outside = [&](int x) {
      const double at = rows_.at(x, 0).x;
      return !(at >= 0.0 && at < rows_.from.width);
    };
    while (begin_ < width && outside(begin_)) ++begin_;
    for (end_ = begin_; end_ < width && !outside(end_); ++end_) {
      const Between place = between_pixels(rows_.at(end_, 0));
      std::fill_n(parts_ + bytes_of(end_ - begin_), 3, static_cast<float>(place.dx));
      const int index = (end_ - begin_) % kPixels;
      const size_t left = bytes_of(std::clamp(place.x, 0, last));
      const size_t right = place.dx == 0.0 ? left : bytes_of(std::clamp(place.x + 1, 0, last));
      Step& step = steps_[(end_ - begin_) / kPixels];
      if (index == 0) step = {left, {}};
      for (size_t c = 0; c < 3; ++c) {
        uint8_t* const order = step.order + 3 * index + c;
        order[0] = static_cast<uint8_t>(left - step.first + c);
        order[kLanes] = static_cast<uint8_t>(right - step.first + c);
      }
    }
  }

  // Which of the two lines has a row of the source, brought to the columns; not that of `other`.
  const float* line_of(int row, int other) {
    for (size_t i = 0; i < 2; ++i) {
      if (shown_[i] == row) return lines_[i];
    }
    const size_t free = shown_[0] == other ? 1 : 0;
    shown_[free] = row;
    const uint8_t* const from = pixel(rows_.from, 0, row);
    const Step* step = steps_;  // copies: for all a compiler knows, stores change members
    const float* part = parts_;
    float* to = lines_[free];
    for (int i = begin_; i < end_; i += kPixels, ++step, part += 3 * kPixels, to += 3 * kPixels) {
      const auto window = hn::LoadU(kWindow, from + step->first);
      const Floats left = chosen(window, step->order);
      const Floats difference = hn::Sub(chosen(window, step->order + kLanes), left);
      const Floats value = hn::MulAdd(difference, hn::LoadU(kFloats, part), left);
      const auto lifted = hn::And(is_whole(value), hn::Ne(difference, all(0.0F)));
      hn::StoreU(hn::Add(value, hn::IfThenElseZero(lifted, all(kLifted))), kFloats, to);
    }
    return lines_[free];
  }

  void write(int y, const Between& place) {
    const int last = rows_.from.height - 1;
    const int above = std::clamp(place.y, 0, last);
    const int below = place.dy == 0.0 ? above : std::clamp(place.y + 1, 0, last);
    const float* const top = line_of(above, below) - 3 * begin_;
    const float* const bottom = line_of(below, above) - 3 * begin_;
    const Floats part = all(static_cast<float>(place.dy));
    const auto difference = [&](int j) {
      return hn::Sub(hn::LoadU(kFloats, bottom + j), hn::LoadU(kFloats, top + j));
    };
    rows_.write<2, false>(
        y, begin_, end_,
        [&](int j) {
          const Floats sum = hn::MulAdd(difference(j), part, hn::LoadU(kFloats, top + j));
          return hn::Add(sum, all(kAbove - 0.5F));
        },
        [&](int j) {
          const auto whole = is_whole(hn::LoadU(kFloats, top + j));
          const auto alike = hn::And(whole, hn::Eq(difference(j), all(0.0F)));
          return ~bits_of(kFloats, alike);
        });
  }

  const Rows& rows_;
  float* const parts_;       // of each value
  float* const lines_[2];    // rows of the source
  int shown_[2] = {-1, -1};  // which
  Step* const steps_;
  int begin_ = 0, end_ = 0;  // of the pixels of a row that are inside
};

// ---- Anywhere ----

// Of each of four floats four, of these the part-th kLanes.
Floats spread(const float* four, int part) {
  if constexpr (kLanes == 4) {
    return all(four[part]);
  } else {
    alignas(64) static constexpr int32_t kOrder[] = {0, 0, 0, 0, 1, 1, 1, 1,
                                                     2, 2, 2, 2, 3, 3, 3, 3};
    const auto order = hn::SetTableIndices(kFloats, kOrder + part * kLanes);
    return hn::TableLookupLanes(hn::LoadDup128(kFloats, four), order);
  }
}

// Of the eight bytes at `above` and the eight at `below` the part-th kLanes.
Floats two_rows(const uint8_t* above, const uint8_t* below, int part) {
  if constexpr (kLanes == 16) {
    const hn::Half<decltype(kBytes)> half;
    return floats(hn::Combine(kBytes, hn::LoadU(half, below), hn::LoadU(half, above)));
  } else {
    return floats(part * kLanes < 8 ? above + part * kLanes : below + part * kLanes - 8);
  }
}

// Four sums, of the lanes 0, 4, ..., the lanes 1, 5, ...
template <class V>
hn::Vec<decltype(kFour)> quarters(V sums) {
  if constexpr (hn::MaxLanes(hn::DFromV<V>()) == 4) {
    return sums;
  } else {
    const hn::Half<hn::DFromV<V>> half;
    return quarters(hn::Add(hn::LowerHalf(half, sums), hn::UpperHalf(half, sums)));
  }
}

// v[0][0], v[1][0], v[2][0], v[3][0], v[0][1], ...
template <class D, class V>
void store_fours([[maybe_unused]] D d, const V (&v)[4], float* to) {
#if HWY_TARGET == HWY_AVX3
  const auto low = hn::Combine(kFloats, v[1], v[0]), high = hn::Combine(kFloats, v[3], v[2]);
  const __m512i first = _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(4));
  _mm512_storeu_ps(to, _mm512_permutex2var_ps(low.raw, first, high.raw));
  _mm512_storeu_ps(to + 16, _mm512_permutex2var_ps(low.raw, second, high.raw));
#else
  hn::StoreInterleaved4(v[0], v[1], v[2], v[3], d, to);
#endif
}

template <int kTaps>
class Anywhere {
 public:
  Anywhere(const Rows& rows, uint8_t*& memory)
      : rows_(rows),
        stride_(4 * (static_cast<size_t>(rows.from.width) + 2 * kBorder)),
        wide_(take<uint8_t>(memory, stride_ * (static_cast<size_t>(rows.from.height) + 4) + 64)) {
    const auto& fill = rows.warp.fill;
    const float values[] = {fill[0] + 0.5F, fill[1] + 0.5F, fill[2] + 0.5F, 0.5F};
    fill_ = hn::LoadU(kFour, values);
  }

  void run() const {
    widen();
    Part part;
    uint8_t* to = rows_.to.pixels;
    for (int y = 0; y < rows_.to.height; ++y) {
      for (int x = 0; x < rows_.to.width; x += kColumns, to += bytes_of(part.count)) {
        part.x = x;
        part.count = std::min(kColumns, rows_.to.width - x);
        find(y, part);
        add_up(part);
        write(y, part, to);
      }
    }
  }

 private:
  static constexpr hn::ScalableTag<double> kDoubles{};
  static constexpr hn::Rebind<float, hn::ScalableTag<double>> kSingles{};
  static constexpr hn::Rebind<int32_t, hn::ScalableTag<double>> kPlaces{};
  using Doubles = hn::Vec<hn::ScalableTag<double>>;
  static constexpr int kBorder = 2;
  static constexpr int kColumns = 256;  // that are found at once
  // As kAbove. Bilinear: parts and their weights are rounded six times, to 2^-25, four products
  // of those to 2^-16, and sums: 2.2e-4. Bicubic: what was summed down has its 1.11e-4, times the
  // sum of the weights across, below 1.5; these are rounded to 2^-25, of numbers below 383; four
  // products of those to 2^-16; sums are below 574 and rounded four times to 2^-15: 4.1e-4.
  static constexpr float kAboveHere = kTaps == 2 ? 0x1p-12F : 0x1p-11F;

  // Some pixels of a row.
  struct Part {
    int x, count;
    alignas(64) float across[4 * kColumns];  // weights: of each pixel, four; bilinear: of both rows
    alignas(64) float down[4][kColumns];
    alignas(64) float sums[4 * kColumns];  // of each pixel, four
    int32_t pixel[kColumns];  // the first neighbour, counted in the wide picture; -1: outside
  };

  // Makes a copy of the picture of four bytes a pixel, whose outermost pixels are repeated on each
  // side: what is read is always there.
  void widen() const {
    alignas(16) static constexpr uint8_t kOrder[] = {0, 1, 2, 2, 3, 4,  5,  5,
                                                     6, 7, 8, 8, 9, 10, 11, 11};
    const auto order = hn::Load(kBlock, kOrder);
    const int width = rows_.from.width;
    uint8_t* to = wide_ + 4 * kBorder;
    for (int y = -kBorder; y < rows_.from.height + kBorder; ++y, to += stride_) {
      const uint8_t* const from = pixel(rows_.from, 0, y);
      for (int x = 0; x < width; x += 4) {
        const auto pixels = hn::LoadU(kBlock, from + 3 * x);
        hn::StoreU(hn::TableLookupBytes(pixels, order), kBlock, to + 4 * x);
      }
      for (int i = 0; i < kBorder; ++i) {
        std::memcpy(to - 4 * (i + 1), to, 4);
        std::memcpy(to + 4 * (width + i), to + 4 * (width - 1), 4);
      }
    }
  }

  // Places and weights, in the order of warp_pixel.h's sums.
  void find(int y, Part& part) const {
    const auto set = [](double value) { return hn::Set(kDoubles, value); };
    const auto inside = [&](Doubles at, int size) {
      return hn::And(hn::Ge(at, hn::Zero(kDoubles)), hn::Lt(at, set(size)));
    };
    const Motion motion = rows_.warp.motion;  // copies, as in Scaled
    const int width = rows_.from.width, height = rows_.from.height;
    const auto& a = motion.a;
    const double at_y = y + 0.5;
    const Doubles b = set(a[1] * at_y), e = set(a[4] * at_y), h = set(a[7] * at_y);
    const Doubles half = set(0.5), inwards = set(kBorder + 1.0 - kTaps / 2);
    const Doubles stride = set(static_cast<double>(stride_ / 4));
    for (int x = 0; x < part.count; x += static_cast<int>(hn::MaxLanes(kDoubles))) {
      const Doubles at_x = hn::Iota(kDoubles, part.x + x + 0.5);
      Doubles from_x = set(a[0]) * at_x + b + set(a[2]);
      Doubles from_y = set(a[3]) * at_x + e + set(a[5]);
      if (motion.perspective) {
        const Doubles w = set(a[6]) * at_x + h + set(1.0);
        from_x = from_x / w;
        from_y = from_y / w;
      }
      const Doubles left = hn::Floor(from_x - half), top = hn::Floor(from_y - half);
      const Doubles pixel = (top + inwards) * stride + (left + inwards);
      const auto shown = hn::And(inside(from_x, width), inside(from_y, height));
      hn::StoreU(hn::DemoteTo(kPlaces, hn::IfThenElse(shown, pixel, set(-1.0))), kPlaces,
                 part.pixel + x);
      weigh(from_x - half - left, from_y - half - top, part, x);
    }
  }

  // The weights of the columns from x on, by their fractions.
  static void weigh(Doubles dx, Doubles dy, Part& part, int x) {
    hn::Vec<decltype(kSingles)> fours[4];
    if constexpr (kTaps == 2) {
      const auto right = hn::DemoteTo(kSingles, dx), below = hn::DemoteTo(kSingles, dy);
      const auto rest = hn::Set(kSingles, 1.0F) - right, above = hn::Set(kSingles, 1.0F) - below;
      fours[0] = rest * above;
      fours[1] = right * above;
      fours[2] = rest * below;
      fours[3] = right * below;
    } else {
      Doubles across[4], down[4];
      weights_of(dx, hn::Set(kDoubles, 1.0), across);
      weights_of(dy, hn::Set(kDoubles, 1.0), down);
      for (size_t i = 0; i < 4; ++i) {
        fours[i] = hn::DemoteTo(kSingles, across[i]);
        hn::StoreU(hn::DemoteTo(kSingles, down[i]), kSingles, part.down[i] + x);
      }
    }
    store_fours(kSingles, fours, part.across + 4 * x);
  }

  void add_up(Part& part) const {
    constexpr int kParts = 16 / kLanes;  // of four pixels of four bytes
    const uint8_t* const wide = wide_;   // copies, as in Scaled
    const size_t stride = stride_;
    const auto fill = fill_;
    const int count = part.count;
    for (int x = 0; x < count; ++x) {
      if (part.pixel[x] < 0) {
        hn::Store(fill, kFour, part.sums + 4 * x);
        continue;
      }
      const uint8_t* const from = wide + ptrdiff_t{4} * part.pixel[x];
      Floats sum = all(0.0F);
      for (int k = 0; k < kParts; ++k) {
        const Floats weights = spread(part.across + 4 * x, k);
        if constexpr (kTaps == 2) {
          sum = hn::MulAdd(two_rows(from, from + stride, k), weights, sum);
        } else {
          const auto row = [&](size_t i) { return floats(from + i * stride + k * kLanes); };
          Floats column = hn::Mul(row(0), all(part.down[0][x]));
          for (size_t i = 1; i < 4; ++i) column = hn::MulAdd(row(i), all(part.down[i][x]), column);
          sum = hn::MulAdd(column, weights, sum);
        }
      }
      hn::Store(quarters(sum), kFour, part.sums + 4 * x);
    }
  }

  // Sums to bytes. What vectors write behind their pixels, others write over.
  void write(int y, const Part& part, uint8_t* to) const {
    alignas(16) static constexpr uint8_t kOrder[] = {0,  1,  2,  4,  5,  6,  8,  9,
                                                     10, 12, 13, 14, 15, 15, 15, 15};
    constexpr int kPixels = kLanes / 4;
    const int count = part.count;
    const auto order = hn::And(hn::LoadU(kBytes, kOrder), hn::Set(kBytes, kLanes - 1));
    for (int x = 0; x < count; x += kPixels) {
      const Floats sums = hn::Load(kFloats, part.sums + 4 * x);
      const Whole whole = Whole::of<kTaps>(hn::Add(sums, all(kAboveHere - 0.5F)), kAboveHere);
      hn::StoreU(hn::TableLookupBytes(whole.bytes, order), kBytes, to + 3 * x);
      if (hn::AllFalse(kFloats, whole.close)) continue;
      uint32_t doubt = bits_of(kFloats, whole.close) & 0x7777;
      for (int i = x; doubt != 0 && i < count; ++i, doubt >>= 4) {
        if ((doubt & 7) != 0) settle(i, y, doubt & 7, part, to + 3 * i);
      }
    }
  }

  // The channels of a pixel that are in doubt, but those in which all neighbours are equal.
  void settle(int x, int y, uint32_t channels, const Part& part, uint8_t* to) const {
    const uint8_t* const from = wide_ + ptrdiff_t{4} * part.pixel[x];
    uint32_t pixel = 0;
    std::memcpy(&pixel, from, 4);
    const hn::Repartition<uint32_t, decltype(kBlock)> pixels;
    const auto first = hn::BitCast(kBlock, hn::Set(pixels, pixel));
    auto unlike = hn::Zero(kBlock);
    for (size_t i = 0; i < kTaps; ++i) {
      unlike = hn::Or(unlike, hn::Xor(first, hn::LoadU(kBlock, from + i * stride_)));
    }
    uint32_t bits = bits_of(kBlock, hn::Ne(unlike, hn::Zero(kBlock)));
    bits |= bits >> 4;
    channels &= kTaps == 2 ? bits : bits | bits >> 8;
    if (channels == 0) return;
    const Neighbours<kTaps> around(rows_.from, between_pixels(rows_.at(part.x + x, y)));
    for (int c = 0; c < 3; ++c) {
      if ((channels >> c & 1) != 0) to[c] = around.value(c);
    }
  }

  const Rows& rows_;
  const size_t stride_;  // bytes of a row of the wide picture
  uint8_t* const wide_;
  hn::Vec<decltype(kFour)> fill_;  // no near whole numbers; what is behind the point is cut off
};

template <int kTaps>
void filtered(const Picture& from, const Warp& warp, uint8_t* memory, const Picture& to) {
  const Rows rows(from, warp, to, memory);
  const Axis axis = axis_of(warp.motion, from, to);
  if (axis == Axis::kX) return Along<kTaps>(rows, memory).x();
  if (axis == Axis::kY) return Along<kTaps>(rows, memory).y();
  if (kTaps == 2 && Scaled::takes(warp.motion)) return Scaled(rows, memory).run();
  Anywhere<kTaps>(rows, memory).run();
}

#if HWY_TARGET == HWY_AVX3
// Byte 3 * i + c of 16 pixels of `step` bytes, the last one first if that is below 0.
constexpr std::array<uint8_t, 64> every(int step) {
  std::array<uint8_t, 64> order{};
  for (int i = 0; i < 48; ++i) {
    order[i] = static_cast<uint8_t>((step < 0 ? i / 3 - 15 : i / 3) * step + i % 3);
  }
  return order;
}
#endif

}  // namespace

void warp_filtered(const Picture& from, const Warp& warp, uint8_t* scratch, const Picture& to) {
  if (warp.filter == WarpFilter::kBilinear) return filtered<2>(from, warp, scratch, to);
  filtered<4>(from, warp, scratch, to);
}

void warp_reversed(const uint8_t* from, int count, uint8_t* to) {
#if HWY_TARGET == HWY_AVX3
  static constexpr auto kOrder = every(-3);
  const __m512i order = _mm512_loadu_si512(kOrder.data());
  constexpr __mmask64 kSixteen = (__mmask64{1} << 48) - 1;
  for (; count >= 16; count -= 16, to += 48) {
    const __m512i pixels = _mm512_maskz_loadu_epi8(kSixteen, from + 3 * (count - 16));
    _mm512_mask_storeu_epi8(to, kSixteen, _mm512_permutexvar_epi8(order, pixels));
  }
#else
  alignas(16) static constexpr uint8_t kOrder[] = {12, 13, 14, 9, 10, 11, 6, 7,
                                                   8,  3,  4,  5, 0,  1,  2, 0};
  const auto order = hn::Load(kBlock, kOrder);
  const bool many = count >= 5;
  for (; count >= 6; count -= 5, to += 15) {  // a byte more, of the next pixel
    const auto pixels = hn::LoadU(kBlock, from + 3 * (count - 5));
    hn::StoreU(hn::TableLookupBytes(pixels, order), kBlock, to);
  }
  if (many) {  // the last five, some of them once more
    const auto pixels = hn::TableLookupBytes(hn::LoadU(kBlock, from), order);
    const hn::Half<decltype(kBlock)> half;
    to += 3 * count - 15;
    hn::StoreU(hn::LowerHalf(half, pixels), half, to);
    hn::StoreU(hn::LowerHalf(half, hn::ShiftRightBytes<7>(kBlock, pixels)), half, to + 7);
    return;
  }
#endif
  for (from += 3 * count; count > 0; --count, to += 3) std::memcpy(to, from -= 3, 3);
}

void warp_nearest(const Picture& from, uint32_t x, uint32_t y, uint32_t dx, uint32_t dy, int count,
                  uint8_t* to) {
  const hn::RebindToUnsigned<decltype(kWords)> words;
  const auto all = [&](auto value) { return hn::Set(words, static_cast<uint32_t>(value)); };
  const auto high = [&](auto at) {
    return hn::BitCast(words, hn::ShiftRight<16>(hn::BitCast(kWords, at)));
  };
  auto at_x = hn::Add(all(x), hn::Mul(all(dx), hn::Iota(words, 0)));
  auto at_y = hn::Add(all(y), hn::Mul(all(dy), hn::Iota(words, 0)));
  for (int i = 0; i < count; i += kLanes, to += 3 * kLanes) {
    const auto column = high(at_x), row = high(at_y);
    const auto inside = hn::And(hn::Lt(column, all(from.width)), hn::Lt(row, all(from.height)));
    const auto place = hn::Add(hn::Mul(row, all(from.width)), column);
    const auto offset = hn::Add(hn::Add(place, place), place);
    at_x = hn::Add(at_x, all(kLanes * dx));
    at_y = hn::Add(at_y, all(kLanes * dy));
    uint32_t bits = bits_of(words, inside);
    if (count - i < kLanes) bits &= (1U << (count - i)) - 1;
#if HWY_TARGET == HWY_AVX3
    if (bits == 0) continue;
    static constexpr auto kOrder = every(4);
    const __m512i pixels = _mm512_mask_i32gather_epi32(
        _mm512_setzero_si512(), static_cast<__mmask16>(bits), offset.raw, from.pixels, 1);
    const __mmask64 bytes = _pdep_u64(bits, 0x249249249249) * 7;
    _mm512_mask_storeu_epi8(
        to, bytes, _mm512_permutexvar_epi8(_mm512_loadu_si512(kOrder.data()), pixels));
#else
    alignas(64) uint32_t offsets[kLanes];
    hn::Store(offset, words, offsets);
    if (bits == (1U << kLanes) - 1) {  // a byte more, of the next pixel
      for (int k = 0; k < kLanes - 1; ++k) std::memcpy(to + 3 * k, from.pixels + offsets[k], 4);
      std::memcpy(to + 3 * (kLanes - 1), from.pixels + offsets[kLanes - 1], 3);
      continue;
    }
    for (; bits != 0; bits &= bits - 1) {
      const int k = std::countr_zero(bits);
      std::memcpy(to + 3 * k, from.pixels + offsets[k], 3);
    }
#endif
  }
}

}  // namespace fastload::FASTLOAD_LEVEL
