// Bilinear and bicubic warps in float: each value is a sum of bytes by their weights, and where that
// is nearer to a whole number than its error, the value is computed plainly. So it does not matter
// whether a level rounds products before they are added up; the bounds below count such roundings.
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
using Floats = hn::Vec<hn::ScalableTag<float>>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(kFloats));

Floats all(float value) { return hn::Set(kFloats, value); }
Floats floats(hn::Vec<decltype(kBytes)> bytes) {
  return hn::ConvertTo(kFloats, hn::PromoteTo(kWords, bytes));
}
Floats floats(const uint8_t* from) { return floats(hn::LoadU(kBytes, from)); }

// One for each lane.
template <class D>
uint32_t bits_of(D d, hn::Mask<D> mask) {
  std::conditional_t<(hn::MaxLanes(d) > 8), uint16_t, uint8_t> bits = 0;
  hn::StoreMaskBits(d, mask, reinterpret_cast<uint8_t*>(&bits));
  return bits;
}

constexpr size_t bytes_of(int pixels) { return size_t{3} * static_cast<size_t>(pixels); }

// Parts of the scratch memory, one behind the other.
class Parts {
 public:
  explicit Parts(uint8_t* memory) : next_(memory) {}
  template <typename T>
  T* take(size_t count) {
    T* const part = reinterpret_cast<T*>(next_);
    next_ += (count * sizeof(T) + 63) / 64 * 64;
    return part;
  }

 private:
  uint8_t* next_;
};

// The rows of a warp.
struct Rows {
  Rows(const Picture& source, const Warp& how, const Picture& made, Parts& parts)
      : from(source), warp(how), to(made), fill(parts.take<uint8_t>(bytes_of(made.width))) {
    for (size_t i = 0; i < bytes_of(to.width); ++i) fill[i] = warp.fill[i % 3];
  }
  [[nodiscard]] At at(int x, int y) const { return source_of(warp.motion, x, y); }
  template <int kTaps>
  [[nodiscard]] uint8_t exact(int value, int y) const {
    return Neighbours<kTaps>(from, between_pixels(at(value / 3, y))).value(value % 3);
  }
  [[nodiscard]] uint8_t* made(int y) const {
    return to.pixels + bytes_of(to.width) * static_cast<size_t>(y);
  }
  // Row y beside its pixels from `begin` to `end`.
  void surround(int y, int begin, int end) const {
    std::memcpy(made(y), fill, bytes_of(begin));
    std::memcpy(made(y) + bytes_of(end), fill, bytes_of(to.width - end));
  }

  const Picture from;
  const Warp& warp;
  const Picture to;
  uint8_t* const fill;
};

// Sums are below 512 and rounded four times, to 2^-16; four weights of bytes are rounded to 2^-25,
// their products to 2^-17 (two at most) and 2^-19. That makes 1.11e-4. Positions below 2^21 are
// rounded to 2^-32, the weights' slopes are below 14 * 255: another 4e-6. kAbove is more. Sums are
// taken that much too high, so that those of equal bytes, whose weights' sum is not quite 1, are not
// below that byte; between kClose below and above a whole number lies whatever may be on its other
// side.
constexpr float kAbove = 0x1p-13F;
constexpr float kClose = 2 * kAbove;
constexpr double kFarthest = 0x1p20;

// Stores the whole parts of sums from which 1/2 was taken, and says which are nearer to a whole
// number than `close`.
template <bool kClamped>
HWY_INLINE hn::Mask<decltype(kFloats)> store_whole(Floats sums, float close, uint8_t* to) {
  constexpr float kNone = 0x1.8p23F;  // its last bit is 1
  Floats whole = hn::Add(sums, all(kNone));
  const Floats distance = hn::Abs(hn::Sub(sums, hn::Sub(whole, all(kNone))));
  if (kClamped) whole = hn::Min(hn::Max(whole, all(kNone)), all(kNone + 255));
  const auto bits = hn::BitCast(hn::RebindToUnsigned<decltype(kWords)>(), whole);
  hn::StoreU(hn::TruncateTo(kBytes, bits), kBytes, to);
  return hn::Gt(distance, all(0.5F - close));
}

// Values from j on that are in doubt and before `end`.
template <typename Exact>
HWY_INLINE void settle(uint32_t doubt, int j, int end, const Exact& exact, uint8_t* to) {
  if (end - j < kLanes) doubt &= (1U << (end - j)) - 1;
  for (; doubt != 0; doubt &= doubt - 1) {
    const int value = j + std::countr_zero(doubt);
    to[value] = exact(value);
  }
}

// Of the neighbours of a place, by its fraction: one number, or a vector of them.
template <typename Number>
void weights_of(Number part, Number one, Number (&weights)[2]) {
  weights[0] = one - part;
  weights[1] = part;
}
template <typename Number>
void weights_of(Number part, Number one, Number (&weights)[4]) {
  const Number rest = one - part;
  const Number minus = (part - one) * part;
  weights[0] = minus * rest;
  weights[1] = one - part * part * (one + rest);
  weights[2] = one - rest * rest * (one + part);
  weights[3] = minus * part;
}

// ---- Along one axis ----
// By parts of a pixel: shears and shifts. What a row shows is of one row of the source (along x), or
// what a column shows of one column (along y), and the fraction is the same all along it, but for
// how Pillow's sums round. So each value is a sum of contiguous bytes with fixed weights.

enum class Axis : uint8_t { kNone, kX, kY };

// Whether all of `count` positions step * (i + 0.5) + shift have fractions that sums can be
// taken with. Shifts by eighths are left to others: too many sums of theirs are whole.
bool has_fractions(double step, double shift, int count) {
  // From here to a whole number, all pixels of a row (or column) have the same neighbours.
  constexpr double kApart = 0x1p-18;
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
Axis axis_of(const Motion& motion, const Picture& from, const Picture& to) {
  const auto& a = motion.a;
  if (from.width != to.width || from.height != to.height) return Axis::kNone;
  if (motion.perspective || a[0] != 1.0 || a[4] != 1.0) return Axis::kNone;
  const bool keeps_rows = a[3] == 0.0 && a[5] == 0.0, keeps_columns = a[1] == 0.0 && a[2] == 0.0;
  if (keeps_rows && to.width < kFarthest && has_fractions(a[1], a[2], to.height)) return Axis::kX;
  if (keeps_columns && to.height < kFarthest && has_fractions(a[3], a[5], to.width)) {
    return Axis::kY;
  }
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
  Along(const Rows& rows, Parts& parts)
      : rows_(rows),
        width_(rows.to.width),
        stride_(bytes_of(width_ + 4) + 64),
        weights_(parts.take<float>(kTaps * stride_)),
        runs_(parts.take<Run>(static_cast<size_t>(width_))),
        lines_(parts.take<uint8_t>(kTaps * stride_)) {}

  void x() {
    const auto& a = rows_.warp.motion.a;
    for (int y = 0; y < rows_.to.height; ++y) {
      const double at = a[1] * (y + 0.5) + a[2];
      const int whole = static_cast<int>(std::floor(at));
      double weights[kTaps];
      weights_of(at - whole, 1.0, weights);
      Floats same[kTaps];
      for (int i = 0; i < kTaps; ++i) same[i] = all(static_cast<float>(weights[i]));
      walk(begin_, width_, [&](int x) { return rows_.at(x, y).x < 0.0; });
      walk(end_, width_, [&](int x) { return rows_.at(x, y).x < width_; });
      if (begin_ < end_) copy_with_border(pixel(rows_.from, 0, y));
      const uint8_t* const first = lines_ + ptrdiff_t{3} * (kBorder + whole + kFirst);
      values(
          y, [&](int i, int j) { return first + 3 * i + j; }, [&](int i, int) { return same[i]; });
    }
  }

  void y() {
    const bool falls = rows_.warp.motion.a[3] < 0.0;
    const int height = rows_.from.height, runs = find_runs();
    const auto line = [&](int y) {
      return lines_ + stride_ * static_cast<size_t>((y + kTaps) % kTaps);
    };
    for (int y = kFirst; y < kFirst + kTaps - 1; ++y) gather(y, runs, line(y));
    for (int y = 0; y < height; ++y) {
      gather(y + kFirst + kTaps - 1, runs, line(y + kFirst + kTaps - 1));
      const auto above = [&](int x) { return rows_.at(x, y).y < 0.0; };
      const auto within = [&](int x) { return rows_.at(x, y).y < height; };
      walk(begin_, width_, [&](int x) { return falls ? !within(x) : above(x); });
      walk(end_, width_, [&](int x) { return falls ? !above(x) : within(x); });
      const uint8_t* lines[kTaps];
      for (int i = 0; i < kTaps; ++i) lines[i] = line(y + kFirst + i);
      values(
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

  // A row with its first and last pixel twice more.
  void copy_with_border(const uint8_t* from) {
    const size_t bytes = bytes_of(width_);
    for (size_t i = 0; i < kBorder; ++i) {
      std::memcpy(lines_ + 3 * i, from, 3);
      std::memcpy(lines_ + 3 * kBorder + bytes + 3 * i, from + bytes - 3, 3);
    }
    std::memcpy(lines_ + 3 * kBorder, from, bytes);
  }

  // The weights of columns, and which of them are moved alike; how many runs there are.
  int find_runs() {
    const auto& a = rows_.warp.motion.a;
    int count = 0;
    for (int x = 0; x < width_; ++x) {
      const double at = a[3] * (x + 0.5) + a[5];
      const int whole = static_cast<int>(std::floor(at));
      double weights[kTaps];
      weights_of(at - whole, 1.0, weights);
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
  void values(int y, const Tap& tap, const Weight& weight) const {
    uint8_t* const to = rows_.made(y);
    const int begin = std::min(begin_, end_), end = 3 * end_;
    for (int j = 3 * begin; j < end; j += kLanes) {
      hn::Vec<decltype(kBytes)> bytes[kTaps];
      Floats sum = all(kAbove - 0.5F);
      for (int i = 0; i < kTaps; ++i) {
        bytes[i] = hn::LoadU(kBytes, tap(i, j));
        sum = hn::MulAdd(weight(i, j), floats(bytes[i]), sum);
      }
      const auto close = store_whole<kTaps == 4>(sum, kClose, to + j);
      // Bilinear sums are close so often that this branch would not be foreseen.
      if (kTaps == 4 && hn::AllFalse(kFloats, close)) continue;
      // Of equal bytes comes that byte: its sum is close, and right.
      auto unlike = hn::Xor(bytes[0], bytes[1]);
      for (int i = 2; i < kTaps; ++i) unlike = hn::Or(unlike, hn::Xor(bytes[0], bytes[i]));
      const uint32_t doubt =
          bits_of(kFloats, close) & bits_of(kBytes, hn::Ne(unlike, hn::Zero(kBytes)));
      settle(doubt, j, end, [&](int value) { return rows_.template exact<kTaps>(value, y); }, to);
    }
    rows_.surround(y, begin, end_);
  }

  const Rows& rows_;
  const int width_;
  const size_t stride_;   // values of a line, and what vectors read and write behind
  float* const weights_;  // of each byte of a row: a line for each tap
  Run* const runs_;
  uint8_t* const lines_;     // as many
  int begin_ = 0, end_ = 0;  // of the pixels of a row that are not filled
};

// ---- Scaled ----
// Bilinear warps that neither turn nor shear nor mirror rows. All rows show the same columns with
// the same fractions, so these are found once; a row of the source is brought to the columns once,
// however many rows show it.

// By which whole values that come from unequal ones are lifted: so between rows equal whole numbers
// come from four equal bytes.
constexpr float kLifted = 0x1p-16F;
// A fraction is rounded to 2^-25, times 255, and each product and sum to 2^-17, along rows and down;
// what is lifted, and the last sum, rounded to 2^-16: 8.4e-5, below kAbove.

// The bytes of `from` that `order` says.
#if HWY_TARGET == HWY_AVX3
constexpr int kWindow = 64;
__m512i window_at(const uint8_t* from) { return _mm512_loadu_si512(from); }
Floats chosen(__m512i window, const uint8_t* order) {
  const __m512i places = _mm512_castsi128_si512(hn::LoadU(kBytes, order).raw);
  return floats(hn::Vec<decltype(kBytes)>{
      _mm512_castsi512_si128(_mm512_permutexvar_epi8(places, window))});
}
#else
constexpr int kWindow = 16;
hn::Vec<decltype(kBlock)> window_at(const uint8_t* from) { return hn::LoadU(kBlock, from); }
Floats chosen(hn::Vec<decltype(kBlock)> window, const uint8_t* order) {
  return floats(hn::TableLookupBytes(window, hn::LoadU(kBytes, order)));
}
#endif

hn::Mask<decltype(kFloats)> is_whole(Floats values) { return hn::Eq(values, hn::Round(values)); }

class Scaled {
 public:
  static bool takes(const Motion& motion, const Picture& from, const Picture& to) {
    const auto& a = motion.a;
    // So the neighbours of pixels that are taken at once lie in a window.
    const bool near = a[0] > 0.0 && 3 * ((kPixels - 1) * a[0] + 3) < kWindow;
    const auto small = [](double value) { return std::abs(value) < kFarthest; };
    return !motion.perspective && a[1] == 0.0 && a[3] == 0.0 && near && small(a[2]) &&
           small(a[4] * to.height) && small(a[5]) && small(to.width) && small(from.width) &&
           small(from.height);
  }

  Scaled(const Rows& rows, Parts& parts)
      : rows_(rows),
        parts_(parts.take<float>(line(rows.to.width))),
        lines_{parts.take<float>(line(rows.to.width)), parts.take<float>(line(rows.to.width))},
        steps_(parts.take<Step>(static_cast<size_t>(rows.to.width / kPixels + 1))) {}

  void run() {
    find_columns();
    for (int y = 0; y < rows_.to.height; ++y) {
      const At at = rows_.at(0, y);
      const bool inside = at.y >= 0.0 && at.y < rows_.from.height && begin_ < end_;
      if (inside) down(y, between_pixels(at));
      rows_.surround(y, inside ? begin_ : 0, inside ? end_ : 0);
    }
  }

 private:
  static constexpr int kPixels = kLanes / 3;

  struct Step {   // of pixels that are taken at once
    size_t first;  // byte of the row
    uint8_t order[2 * kLanes];
  };

  // Values of a row, and what vectors write behind.
  static size_t line(int width) { return bytes_of(width) + 2 * kLanes; }

  // Which pixels of a row are inside; their neighbours and fractions.
  void find_columns() {
    const int width = rows_.to.width, last = rows_.from.width - 1;
    const auto inside = [&](int x) {
      const double at = rows_.at(x, 0).x;
      return at >= 0.0 && at < rows_.from.width;
    };
    while (begin_ < width && !inside(begin_)) ++begin_;
    for (end_ = begin_; end_ < width && inside(end_); ++end_) {
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
    float* to = lines_[free];
    const float* parts = parts_;
    const int count = (end_ - begin_ + kPixels - 1) / kPixels;
    for (int i = 0; i < count; ++i, to += 3 * kPixels, parts += 3 * kPixels) {
      const auto window = window_at(from + steps_[i].first);
      const Floats left = chosen(window, steps_[i].order);
      const Floats difference = hn::Sub(chosen(window, steps_[i].order + kLanes), left);
      const Floats value = hn::MulAdd(difference, hn::LoadU(kFloats, parts), left);
      const auto lifted = hn::And(is_whole(value), hn::Ne(difference, all(0.0F)));
      hn::StoreU(hn::Add(value, hn::IfThenElseZero(lifted, all(kLifted))), kFloats, to);
    }
    return lines_[free];
  }

  // The pixels that are inside of row y.
  void down(int y, const Between& place) {
    const int last = rows_.from.height - 1;
    const int above = std::clamp(place.y, 0, last);
    const int below = place.dy == 0.0 ? above : std::clamp(place.y + 1, 0, last);
    const float* const top = line_of(above, below);
    const float* const bottom = line_of(below, above);
    const Floats part = all(static_cast<float>(place.dy));
    const int first = 3 * begin_, count = 3 * end_ - first;
    uint8_t* const to = rows_.made(y) + first;
    for (int j = 0; j < count; j += kLanes) {
      const Floats values = hn::LoadU(kFloats, top + j);
      const Floats difference = hn::Sub(hn::LoadU(kFloats, bottom + j), values);
      const Floats sum = hn::Add(hn::MulAdd(difference, part, values), all(kAbove - 0.5F));
      const auto close = store_whole<false>(sum, kClose, to + j);
      if (hn::AllFalse(kFloats, close)) continue;
      const auto alike = hn::And(is_whole(values), hn::Eq(difference, all(0.0F)));
      const uint32_t doubt = bits_of(kFloats, hn::AndNot(alike, close));
      settle(doubt, j, count, [&](int value) { return rows_.exact<2>(first + value, y); }, to);
    }
  }

  const Rows& rows_;
  float* const parts_;       // of each value
  float* const lines_[2];    // rows of the source
  int shown_[2] = {-1, -1};  // which
  Step* const steps_;
  int begin_ = 0, end_ = 0;  // of the pixels of a row that are inside
};

// ---- Anywhere ----

// Pixels of three bytes to four, and back, as many as there are in 16 bytes.
template <bool kWiden>
void rewrite(const uint8_t* from, int count, uint8_t* to) {
  alignas(16) static constexpr uint8_t kWide[] = {0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11};
  alignas(16) static constexpr uint8_t kNarrow[] = {0, 1, 2,  4,  5,  6,  8,  9,
                                                    10, 12, 13, 14, 15, 15, 15, 15};
  constexpr int kFrom = kWiden ? 3 : 4, kTo = kWiden ? 4 : 3;
  const auto order = hn::Load(kBlock, kWiden ? kWide : kNarrow);
  for (int x = 0; x < count; x += 4) {
    const auto pixels = hn::LoadU(kBlock, from + kFrom * x);
    hn::StoreU(hn::TableLookupBytes(pixels, order), kBlock, to + kTo * x);
  }
}

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

// a[0], b[0], c[0], d[0], a[1], ...
template <class D, class V>
void store_fours([[maybe_unused]] D d, V a, V b, V c, V e, float* to) {
#if HWY_TARGET == HWY_AVX3
  const auto ab = hn::Combine(kFloats, b, a), ce = hn::Combine(kFloats, e, c);
  const __m512i first = _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(4));
  _mm512_storeu_ps(to, _mm512_permutex2var_ps(ab.raw, first, ce.raw));
  _mm512_storeu_ps(to + 16, _mm512_permutex2var_ps(ab.raw, second, ce.raw));
#else
  hn::StoreInterleaved4(a, b, c, e, d, to);
#endif
}

template <int kTaps>
class Anywhere {
 public:
  Anywhere(const Picture& from, const Warp& warp, uint8_t* memory, const Picture& to)
      : from_(from),
        warp_(warp),
        wide_(memory),
        stride_(4 * (static_cast<size_t>(from.width) + 2 * kBorder)),
        to_(to) {
    const float fill[] = {warp.fill[0] + 0.5F, warp.fill[1] + 0.5F, warp.fill[2] + 0.5F, 0.5F};
    fill_ = hn::LoadU(kFour, fill);
    widen(memory);
  }

  void run() const {
    Part part;
    uint8_t* to = to_.pixels;
    for (int y = 0; y < to_.height; ++y) {
      for (int x = 0; x < to_.width; x += kColumns) {
        const int count = std::min(kColumns, to_.width - x);
        find(x, y, count, part);
        add_up(count, part);
        round(x, y, count, part);
        rewrite<false>(part.line, count, to);
        to += bytes_of(count);
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
  // As of kAbove. Bilinear: parts and their weights are rounded six times, to 2^-25, four products
  // of those to 2^-16, and sums: 2.2e-4. Bicubic: what was summed down has its 1.11e-4, times the
  // sum of the weights across, below 1.5; these are rounded to 2^-25, of numbers below 383; four
  // products of those to 2^-16; sums are below 574 and rounded four times to 2^-15: 4.1e-4.
  static constexpr float kAboveHere = kTaps == 2 ? 0x1p-12F : 0x1p-11F;

  // What is known of some pixels of a row.
  struct Part {
    alignas(64) float across[4 * kColumns];  // weights: of each pixel, four; bilinear: of both rows
    alignas(64) float down[4][kColumns];
    alignas(64) float sums[4 * kColumns];  // of each pixel, four
    int32_t pixel[kColumns];  // the first neighbour, counted in the wide picture; -1: outside
    uint8_t line[4 * kColumns + 16];  // pixels of four bytes
  };

  // A copy of the picture of four bytes a pixel, whose outermost pixels are repeated on each side:
  // what is read is always there.
  void widen(uint8_t* memory) const {
    const size_t inner = 4 * kBorder, last = 4 * static_cast<size_t>(from_.width - 1);
    uint8_t* to = memory + kBorder * stride_;
    for (int y = 0; y < from_.height; ++y, to += stride_) {
      rewrite<true>(pixel(from_, 0, y), from_.width, to + inner);
      for (size_t i = 0; i < kBorder; ++i) {
        std::memcpy(to + 4 * i, to + inner, 4);
        std::memcpy(to + inner + last + 4 * (i + 1), to + inner + last, 4);
      }
    }
    for (size_t i = 0; i < kBorder; ++i) {
      std::memcpy(memory + i * stride_, memory + kBorder * stride_, stride_);
      std::memcpy(to + i * stride_, to - stride_, stride_);
    }
  }

  // Places and weights, in the order of warp_pixel.h's sums.
  void find(int first, int y, int count, Part& part) const {
    const auto set = [](double value) { return hn::Set(kDoubles, value); };
    const auto& a = warp_.motion.a;
    const double at_y = y + 0.5;
    const Doubles b = set(a[1] * at_y), e = set(a[4] * at_y), h = set(a[7] * at_y);
    const Doubles half = set(0.5), inwards = set(kBorder + 1.0 - kTaps / 2);
    const Doubles stride = set(static_cast<double>(stride_ / 4));
    const Doubles width = set(from_.width), height = set(from_.height);
    const auto inside = [](Doubles at, Doubles size) {
      return hn::And(hn::Ge(at, hn::Zero(kDoubles)), hn::Lt(at, size));
    };
    for (int x = 0; x < count; x += static_cast<int>(hn::MaxLanes(kDoubles))) {
      const Doubles at_x = hn::Iota(kDoubles, first + x + 0.5);
      Doubles from_x = set(a[0]) * at_x + b + set(a[2]);
      Doubles from_y = set(a[3]) * at_x + e + set(a[5]);
      if (warp_.motion.perspective) {
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
    float* const fours = part.across + 4 * x;
    const auto singles = [](Doubles values) { return hn::DemoteTo(kSingles, values); };
    if constexpr (kTaps == 2) {
      const auto right = singles(dx), below = singles(dy), one = hn::Set(kSingles, 1.0F);
      const auto rest = one - right, above = one - below;
      store_fours(kSingles, rest * above, right * above, rest * below, right * below, fours);
    } else {
      Doubles across[kTaps], down[kTaps];
      weights_of(dx, hn::Set(kDoubles, 1.0), across);
      weights_of(dy, hn::Set(kDoubles, 1.0), down);
      store_fours(kSingles, singles(across[0]), singles(across[1]), singles(across[2]),
                  singles(across[3]), fours);
      for (size_t i = 0; i < 4; ++i) hn::StoreU(singles(down[i]), kSingles, part.down[i] + x);
    }
  }

  void add_up(int count, Part& part) const {
    constexpr int kParts = 16 / kLanes;  // of four pixels of four bytes
    // Copies: for all a compiler knows, stores change members.
    const uint8_t* const wide = wide_;
    const size_t stride = stride_;
    const auto fill = fill_;
    for (int x = 0; x < count; ++x) {
      float* const sums = part.sums + 4 * x;
      if (part.pixel[x] < 0) {
        hn::Store(fill, kFour, sums);
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
      hn::Store(quarters(sum), kFour, sums);
    }
  }

  // Sums to bytes.
  void round(int first, int y, int count, Part& part) const {
    const int values = 4 * count;
    for (int j = 0; j < values; j += kLanes) {
      const Floats sum = hn::Add(hn::Load(kFloats, part.sums + j), all(kAboveHere - 0.5F));
      const auto close = store_whole<kTaps == 4>(sum, 2 * kAboveHere, part.line + j);
      if (hn::AllFalse(kFloats, close)) continue;
      uint32_t doubt = bits_of(kFloats, close) & 0x7777;
      if (values - j < kLanes) doubt &= (1U << (values - j)) - 1;
      for (int i = 0; doubt != 0; ++i, doubt >>= 4) {
        if ((doubt & 7) != 0) settle_pixel(first, j / 4 + i, y, doubt & 7, part);
      }
    }
  }

  // The channels of a pixel that are in doubt.
  void settle_pixel(int first, int x, int y, uint32_t channels, Part& part) const {
    channels &= ~alike(wide_ + ptrdiff_t{4} * part.pixel[x]);
    if (channels == 0) return;
    const Neighbours<kTaps> around(from_, between_pixels(source_of(warp_.motion, first + x, y)));
    for (; channels != 0; channels &= channels - 1) {
      const int c = std::countr_zero(channels);
      part.line[4 * x + c] = around.value(c);
    }
  }

  // In which channels all neighbours are equal: their sum is right.
  [[nodiscard]] uint32_t alike(const uint8_t* from) const {
    const hn::Repartition<uint32_t, decltype(kBlock)> pixels;
    uint32_t pixel = 0;
    std::memcpy(&pixel, from, 4);
    const auto first = hn::BitCast(kBlock, hn::Set(pixels, pixel));
    auto unlike = hn::Zero(kBlock);
    for (size_t i = 0; i < kTaps; ++i) {
      unlike = hn::Or(unlike, hn::Xor(first, hn::LoadU(kBlock, from + i * stride_)));
    }
    const uint32_t bits = bits_of(kBlock, hn::Eq(unlike, hn::Zero(kBlock)));
    const uint32_t pairs = bits & (bits >> 4);
    return kTaps == 2 ? pairs : pairs & (pairs >> 8);
  }

  const Picture& from_;
  const Warp& warp_;
  const uint8_t* const wide_;
  const size_t stride_;  // bytes of a row there
  const Picture to_;
  hn::Vec<decltype(kFour)> fill_;  // no near whole numbers; what is behind the point is cut off
};

template <int kTaps>
void filtered(const Picture& from, const Warp& warp, uint8_t* scratch, const Picture& to) {
  const Axis axis = axis_of(warp.motion, from, to);
  const bool scaled = kTaps == 2 && axis == Axis::kNone && Scaled::takes(warp.motion, from, to);
  if (axis == Axis::kNone && !scaled) return Anywhere<kTaps>(from, warp, scratch, to).run();
  Parts parts(scratch);
  const Rows rows(from, warp, to, parts);
  if (scaled) return Scaled(rows, parts).run();
  Along<kTaps> along(rows, parts);
  axis == Axis::kX ? along.x() : along.y();
}

#if HWY_TARGET == HWY_AVX3
// Byte 3 * i + c of 16 pixels of `step` bytes, the last one first if that is below 0.
constexpr std::array<uint8_t, 64> every(int step) {
  std::array<uint8_t, 64> order{};
  for (int i = 0; i < 48; ++i) {
    order[i] = static_cast<uint8_t>(step < 0 ? (i / 3 - 15) * step + i % 3 : i / 3 * step + i % 3);
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
  for (; count >= 6; count -= 5, to += 15) {  // a byte more, of the next pixel
    const auto pixels = hn::LoadU(kBlock, from + 3 * (count - 5));
    hn::StoreU(hn::TableLookupBytes(pixels, hn::Load(kBlock, kOrder)), kBlock, to);
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
