// The kernels of pointwise.h, over a vector of each channel's bytes.
#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "transform/pixels/pointwise.h"
// Behind the others:
#include "base/highway.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

constexpr hn::ScalableTag<uint8_t> kBytes{};
constexpr hn::ScalableTag<uint16_t> kHalves{};
constexpr hn::ScalableTag<int16_t> kShorts{};
constexpr hn::ScalableTag<int32_t> kInts{};
constexpr hn::ScalableTag<float> kFloats{};
using Bytes = hn::Vec<hn::ScalableTag<uint8_t>>;
using Halves = hn::Vec<hn::ScalableTag<uint16_t>>;
using Ints = hn::Vec<hn::ScalableTag<int32_t>>;
using Floats = hn::Vec<hn::ScalableTag<float>>;
constexpr size_t kLanes = hn::MaxLanes(kBytes);

Bytes bytes(int value) { return hn::Set(kBytes, static_cast<uint8_t>(value)); }
Floats floats(float value) { return hn::Set(kFloats, value); }

// ---- Pixels and channels ----

#if HWY_TARGET == HWY_AVX3

// Where 64 pixels' bytes are in vectors of channels, and the other way round: 64 * vector + byte.
struct Places {
  alignas(64) uint8_t split[3][64];
  alignas(64) uint8_t join[3][64];
  constexpr Places() : split(), join() {
    for (size_t i = 0; i < 192; ++i) {
      split[i % 3][i / 3] = static_cast<uint8_t>(i);
      join[i / 64][i % 64] = static_cast<uint8_t>(64 * (i % 3) + i / 3);
    }
  }
};
constexpr Places kPlaces;

Bytes gathered(Bytes a, Bytes b, Bytes c, const uint8_t* places) {
  const __m512i at = _mm512_load_si512(places);
  const __m512i front = _mm512_permutex2var_epi8(a.raw, at, b.raw);
  return Bytes{_mm512_mask_permutexvar_epi8(front, _mm512_movepi8_mask(at), at, c.raw)};
}
void split(const uint8_t* rgb, Bytes& r, Bytes& g, Bytes& b) {
  const Bytes first = hn::LoadU(kBytes, rgb);
  const Bytes second = hn::LoadU(kBytes, rgb + 64);
  const Bytes third = hn::LoadU(kBytes, rgb + 128);
  r = gathered(first, second, third, kPlaces.split[0]);
  g = gathered(first, second, third, kPlaces.split[1]);
  b = gathered(first, second, third, kPlaces.split[2]);
}
void join(Bytes r, Bytes g, Bytes b, uint8_t* rgb) {
  for (size_t v = 0; v < 3; ++v) {
    hn::StoreU(gathered(r, g, b, kPlaces.join[v]), kBytes, rgb + 64 * v);
  }
}

#else

void split(const uint8_t* rgb, Bytes& r, Bytes& g, Bytes& b) {
  hn::LoadInterleaved3(kBytes, rgb, r, g, b);
}
void join(Bytes r, Bytes g, Bytes b, uint8_t* rgb) { hn::StoreInterleaved3(r, g, b, kBytes, rgb); }

#endif

// Calls work(at) for each kLanes pixels; behind the last ones are zeros.
template <class Byte, class Work>
HWY_INLINE void for_pixels(Byte* rgb, size_t pixels, const Work& work) {
  for (; pixels >= kLanes; pixels -= kLanes, rgb += 3 * kLanes) work(rgb);
  if (pixels == 0) return;
  uint8_t rest[3 * kLanes] = {};
  std::memcpy(rest, rgb, 3 * pixels);
  work(rest);
  if constexpr (!std::is_const_v<Byte>) std::memcpy(rgb, rest, 3 * pixels);
}

// The same with the channels, which work(r, g, b) changes.
template <class Work>
HWY_INLINE void change(uint8_t* rgb, size_t pixels, const Work& work) {
  for_pixels(rgb, pixels, [&](uint8_t* at) HWY_ATTR {
    Bytes r, g, b;
    split(at, r, g, b);
    work(r, g, b);
    join(r, g, b, at);
  });
}

// ---- Tables ----

// With 16 bytes at a time, and without Arm's longer tables, single bytes are as fast.
#define FASTLOAD_LONG_TABLES (HWY_ARCH_ARM_A64 && HWY_TARGET != HWY_EMU128)
constexpr bool kByBytes = kLanes == 16 && !FASTLOAD_LONG_TABLES;

class Table {
 public:
  explicit Table(const ByteTable& from) {
    for (size_t i = 0; i < std::size(parts_); ++i) {
      parts_[i] = kWhole ? hn::LoadU(kBytes, from.data() + kLanes * i)
                         : hn::LoadDup128(kBytes, from.data() + 16 * i);
    }
  }

  [[nodiscard]] HWY_INLINE Bytes of(Bytes x) const {
#if HWY_TARGET == HWY_AVX3
    const Bytes low{_mm512_permutex2var_epi8(parts_[0].raw, x.raw, parts_[1].raw)};
    const Bytes high{_mm512_permutex2var_epi8(parts_[2].raw, x.raw, parts_[3].raw)};
    return hn::IfThenElse(hn::MaskFromVec(x), high, low);
#elif FASTLOAD_LONG_TABLES
    // An index that a part does not have gives 0, or leaves what is there.
    const auto part = [&](size_t i) {
      return uint8x16x4_t{{parts_[i].raw, parts_[i + 1].raw, parts_[i + 2].raw, parts_[i + 3].raw}};
    };
    uint8x16_t found = vqtbl4q_u8(part(0), x.raw);
    for (size_t i = 4; i < 16; i += 4) {
      found = vqtbx4q_u8(found, part(i), hn::Sub(x, bytes(static_cast<int>(16 * i))).raw);
    }
    return Bytes{found};
#else
    // All 16 parts by the low four bits, then halved four times, by a bit each.
    const hn::RebindToSigned<decltype(kBytes)> by_sign;
    const auto low = hn::BitCast(by_sign, hn::And(x, bytes(15)));
    const auto halves = hn::BitCast(kHalves, x);
    const auto choose = [&](Halves bit, auto yes, auto no) HWY_ATTR {
      return hn::IfNegativeThenElse(hn::BitCast(by_sign, bit), yes, no);
    };
    const auto two = [&](size_t i) HWY_ATTR {
      return choose(hn::ShiftLeft<3>(halves), hn::TableLookupBytes(parts_[i + 1], low),
                    hn::TableLookupBytes(parts_[i], low));
    };
    const auto four = [&](size_t i) HWY_ATTR {
      return choose(hn::ShiftLeft<2>(halves), two(i + 2), two(i));
    };
    const auto eight = [&](size_t i) HWY_ATTR {
      return choose(hn::ShiftLeft<1>(halves), four(i + 4), four(i));
    };
    return hn::BitCast(kBytes, choose(halves, eight(8), eight(0)));
#endif
  }

 private:
  static constexpr bool kWhole = HWY_TARGET == HWY_AVX3;
  Bytes parts_[kWhole ? 4 : 16];
};

void look_up(uint8_t* rgb, size_t bytes, const ByteTable& table) {
  const Table in_registers(table);
  for (; bytes >= kLanes && !kByBytes; bytes -= kLanes, rgb += kLanes) {
    hn::StoreU(in_registers.of(hn::LoadU(kBytes, rgb)), kBytes, rgb);
  }
  for (size_t i = 0; i < bytes; ++i) rgb[i] = table[rgb[i]];
}

void look_up_each(uint8_t* rgb, size_t pixels, const ByteTable* tables) {
  if constexpr (kByBytes) {
    for (const uint8_t* const end = rgb + 3 * pixels; rgb != end; rgb += 3) {
      for (size_t c = 0; c < 3; ++c) rgb[c] = tables[c][rgb[c]];
    }
    return;
  }
  const Table red(tables[0]), green(tables[1]), blue(tables[2]);
  change(rgb, pixels, [&](Bytes& r, Bytes& g, Bytes& b) HWY_ATTR {
    r = red.of(r);
    g = green.of(g);
    b = blue.of(b);
  });
}

void permute(uint8_t* rgb, size_t pixels, const uint8_t* order) {
  change(rgb, pixels, [&](Bytes& r, Bytes& g, Bytes& b) HWY_ATTR {
    const Bytes before[] = {r, g, b};
    r = before[order[0]];
    g = before[order[1]];
    b = before[order[2]];
  });
}

void extremes(const uint8_t* rgb, size_t pixels, uint8_t* least, uint8_t* greatest) {
  struct Range {
    Bytes low = bytes(255), high = bytes(0);
    HWY_INLINE void take(const uint8_t* at) {
      const Bytes values = hn::LoadU(kBytes, at);
      low = hn::Min(low, values);
      high = hn::Max(high, values);
    }
  };
  Range first, second, third;
  for (; pixels >= kLanes; pixels -= kLanes, rgb += 3 * kLanes) {
    first.take(rgb);
    second.take(rgb + kLanes);
    third.take(rgb + 2 * kLanes);
  }
  alignas(64) uint8_t low[3 * kLanes], high[3 * kLanes];
  const Range ranges[] = {first, second, third};
  for (size_t v = 0; v < 3; ++v) {
    hn::Store(ranges[v].low, kBytes, low + v * kLanes);
    hn::Store(ranges[v].high, kBytes, high + v * kLanes);
  }
  std::fill_n(least, 3, uint8_t{255});
  std::fill_n(greatest, 3, uint8_t{0});
  const auto take = [&](size_t c, uint8_t small, uint8_t large) {
    least[c] = std::min(least[c], small);
    greatest[c] = std::max(greatest[c], large);
  };
  for (size_t i = 0; i < 3 * kLanes; ++i) take(i % 3, low[i], high[i]);
  for (size_t i = 0; i < 3 * pixels; ++i) take(i % 3, rgb[i], rgb[i]);
}

// ---- Luma ----

HWY_INLINE Halves even(Bytes v) {
  return hn::And(hn::BitCast(kHalves, v), hn::Set(kHalves, uint16_t{255}));
}
HWY_INLINE Halves odd(Bytes v) { return hn::ShiftRight<8>(hn::BitCast(kHalves, v)); }

// Volatile: compilers make chains of shifts and sums of factors that they know, which take longer.
const volatile uint16_t kLumaWeights[] = {19595, 38470, 7471};

// luma_of() in 16 bits: each weight is 256 * coarse + fine, and what is below the upper byte of the
// fine parts' sum does not reach the result.
class Luma {
 public:
  Luma() {
    for (size_t c = 0; c < 3; ++c) {
      const unsigned weight = kLumaWeights[c];
      coarse_[c] = hn::Set(kHalves, static_cast<uint16_t>(weight >> 8));
      fine_[c] = hn::Set(kHalves, static_cast<uint16_t>(weight & 255));
    }
  }
  [[nodiscard]] HWY_INLINE Bytes of(Bytes r, Bytes g, Bytes b) const {
    const Halves evens = hn::ShiftRight<8>(of(even(r), even(g), even(b)));
    const Halves odds = of(odd(r), odd(g), odd(b));
    return hn::OddEven(hn::BitCast(kBytes, odds), hn::BitCast(kBytes, evens));
  }

 private:
  // In the upper bytes.
  [[nodiscard]] HWY_INLINE Halves of(Halves r, Halves g, Halves b) const {
    const auto sum = [&](const Halves* weights) HWY_ATTR {
      return hn::Add(hn::Add(hn::Mul(r, weights[0]), hn::Mul(g, weights[1])),
                     hn::Mul(b, weights[2]));
    };
    const Halves rounding = hn::Set(kHalves, uint16_t{128});
    return hn::Add(sum(coarse_), hn::Add(hn::ShiftRight<8>(sum(fine_)), rounding));
  }

  Halves coarse_[3];
  Halves fine_[3];
};

void grayscale(uint8_t* rgb, size_t pixels) {
  const Luma luma;
  change(rgb, pixels, [&](Bytes& r, Bytes& g, Bytes& b) HWY_ATTR { r = g = b = luma.of(r, g, b); });
}

uint64_t luma_sum(const uint8_t* rgb, size_t pixels) {
  const Luma luma;
  const hn::Repartition<uint64_t, decltype(kBytes)> sums;
  auto sum = hn::Zero(sums);
  for_pixels(rgb, pixels, [&](const uint8_t* at) HWY_ATTR {
    Bytes r, g, b;
    split(at, r, g, b);
    sum = hn::Add(sum, hn::SumsOf8(luma.of(r, g, b)));
  });
  return hn::GetLane(hn::SumOfLanes(sums, sum));
}

// ---- Blends ----

// Bytes as the last bits of floats from 2^23 on, in four vectors, whose order joined() knows.
struct Raised {
  static constexpr float kZero = 8388608.0f;
  Floats part[4];

  HWY_INLINE explicit Raised(Bytes v) {
    const Halves exponent = hn::Set(kHalves, uint16_t{0x4B00});
    const auto low = hn::BitCast(kHalves, hn::InterleaveLower(kBytes, v, hn::Zero(kBytes)));
    const auto high = hn::BitCast(kHalves, hn::InterleaveUpper(kBytes, v, hn::Zero(kBytes)));
    part[0] = hn::BitCast(kFloats, hn::InterleaveLower(kHalves, low, exponent));
    part[1] = hn::BitCast(kFloats, hn::InterleaveUpper(kHalves, low, exponent));
    part[2] = hn::BitCast(kFloats, hn::InterleaveLower(kHalves, high, exponent));
    part[3] = hn::BitCast(kFloats, hn::InterleaveUpper(kHalves, high, exponent));
  }
};

// Bytes again, cut to 0 to 255.
HWY_INLINE Bytes joined(const Ints* parts) {
  const auto low = hn::ReorderDemote2To(kShorts, parts[0], parts[1]);
  return pack_bytes(kBytes, low, hn::ReorderDemote2To(kShorts, parts[2], parts[3]));
}

// The factor for blended(): beyond a million, all differences become 0 or 255.
Floats factors(float factor) { return floats(std::clamp(factor, -1e6f, 1e6f)); }

HWY_INLINE Bytes blended(const Raised& from, Bytes bytes, Floats factor) {
  const Raised to(bytes);
  Ints parts[4];
  for (size_t i = 0; i < 4; ++i) {
    const Floats step = hn::Mul(factor, hn::Sub(to.part[i], from.part[i]));
    const Floats start = hn::Sub(from.part[i], floats(Raised::kZero));
    parts[i] = truncated(kInts, hn::Add(start, step));
  }
  return joined(parts);
}

void saturation(uint8_t* rgb, size_t pixels, float factor) {
  const Luma luma;
  const Floats by = factors(factor);
  change(rgb, pixels, [&](Bytes& r, Bytes& g, Bytes& b) HWY_ATTR {
    const Raised gray(luma.of(r, g, b));
    r = blended(gray, r, by);
    g = blended(gray, g, by);
    b = blended(gray, b, by);
  });
}

// ---- Hue ----

// number / divisor, correctly rounded; where there are fused operations, from the rounded
// 1 / divisor (Markstein).
HWY_INLINE Floats quotient(Floats number, float divisor) {
#if HWY_NATIVE_FMA && HWY_TARGET != HWY_EMU128
  const Floats reciprocal = floats(1.0f / divisor);
  const Floats near = hn::Mul(number, reciprocal);
  return hn::MulAdd(hn::NegMulAdd(floats(divisor), near, number), reciprocal, near);
#else
  return hn::Div(number, floats(divisor));
#endif
}

// Colours as HSV says them: hue = base + sign * part / range, in sixths of a turn.
struct Hues {
  Bytes most, range, part, base_and_one, sign_and_one;

  HWY_INLINE Hues(Bytes r, Bytes g, Bytes b) {
    const Bytes larger = hn::Max(r, g);
    const Bytes smaller = hn::Min(r, g);
    const Bytes low = hn::Min(smaller, b);
    most = hn::Max(larger, b);
    range = hn::Sub(most, low);
    part = hn::Sub(most, hn::Max(smaller, hn::Min(larger, b)));
    const auto red = hn::Eq(r, most);
    const auto red_or_green = hn::Or(red, hn::Eq(g, most));
    const auto other = hn::Or(hn::And(red_or_green, hn::Eq(b, low)),
                              hn::AndNot(red_or_green, hn::Eq(r, low)));
    // 1 - q, q - 1; 1 + q, 3 - q; 3 + q, 5 - q
    const Bytes first = hn::IfThenElse(red_or_green, bytes(2), bytes(4));
    const Bytes second =
        hn::IfThenElse(red, bytes(0), hn::IfThenElse(red_or_green, bytes(4), bytes(6)));
    base_and_one = hn::IfThenElse(other, first, second);
    sign_and_one = hn::IfThenElse(hn::Xor(other, red), bytes(2), bytes(0));
  }
};

// What the colours of turned hues consist of, beside hues.most.
struct Turned {
  Bytes sector, low, falling, rising;

  // libImaging/Convert.c, rgb2hsv_row and hsv2rgb_row. Pillow computes in double here and there:
  // float gives the same bytes (all colours, all shifts), if 255 h is not rounded up to a whole
  // number.
  HWY_INLINE Turned(const Hues& hues, Ints shift) {
    const Raised values(hues.most), ranges(hues.range), parts(hues.part);
    const Raised bases(hues.base_and_one), signs(hues.sign_and_one);
    Ints found[4][4];
    for (size_t i = 0; i < 4; ++i) {
      // Gray has no saturation, whatever its hue; 1 keeps the divisions out of trouble.
      const Floats one = floats(1.0f);
      const auto less = [&](const Raised& of, float number) HWY_ATTR {
        return hn::Sub(of.part[i], floats(Raised::kZero + number));
      };
      const Floats value = less(values, 0);
      const Floats range = less(ranges, 0);
      const Floats q = hn::Div(less(parts, 0), hn::Max(range, one));
      Floats hue = quotient(hn::Add(less(bases, 1), hn::Mul(less(signs, 1), q)), 6.0f);
      hue = hn::Add(hue, hn::IfThenElseZero(hn::Lt(hue, hn::Zero(kFloats)), one));
      const Ints near = truncated(kInts, hn::Mul(hue, floats(255.0f)));
      // 255 h < near, exactly: 256 h - near has no more than 24 bits.
      const Floats above = hn::Sub(hn::Mul(hue, floats(256.0f)), hn::ConvertTo(kFloats, near));
      const Ints beyond = hn::VecFromMask(kInts, hn::RebindMask(kInts, hn::Lt(above, hue)));
      const Ints turned = hn::And(hn::Add(hn::Add(near, beyond), shift), hn::Set(kInts, 255));
      // 6 turned / 255
      const Halves ratio = hn::Set(kHalves, uint16_t{1543});
      const Ints at = hn::BitCast(kInts, hn::MulHigh(hn::BitCast(kHalves, turned), ratio));
      const Floats f = quotient(hn::Sub(hn::Mul(hn::ConvertTo(kFloats, turned), floats(6.0f)),
                                        hn::Mul(hn::ConvertTo(kFloats, at), floats(255.0f))),
                                255.0f);
      const Floats pure = hn::Mul(floats(255.0f), hn::Div(range, hn::Max(value, one)));
      const Floats s = quotient(hn::ConvertTo(kFloats, truncated(kInts, pure)), 255.0f);
      const auto without = [&](Floats portion) HWY_ATTR {
        const Floats left = hn::Mul(value, hn::Sub(one, portion));
        return truncated(kInts, hn::Add(left, floats(0.5f)));
      };
      found[0][i] = at;
      found[1][i] = without(s);
      found[2][i] = without(hn::Mul(s, f));
      found[3][i] = without(hn::Mul(s, hn::Sub(one, f)));
    }
    sector = joined(found[0]);
    low = joined(found[1]);
    falling = joined(found[2]);
    rising = joined(found[3]);
  }
};

void hue(uint8_t* rgb, size_t pixels, uint8_t shift) {
  const Ints by = hn::Set(kInts, shift);
  change(rgb, pixels, [&](Bytes& r, Bytes& g, Bytes& b) HWY_ATTR {
    const Hues hues(r, g, b);
    const Turned turned(hues, by);
    const auto in = [&](int sector) HWY_ATTR { return hn::Eq(turned.sector, bytes(sector)); };
    const auto pick = [](auto where, Bytes yes, Bytes no) HWY_ATTR {
      return hn::IfThenElse(where, yes, no);
    };
    // 6 is 0 again
    const auto one = in(1), two = in(2), three = in(3), four = in(4), five = in(5);
    const Bytes v = hues.most, p = turned.low, q = turned.falling, t = turned.rising;
    r = pick(one, q, pick(hn::Or(two, three), p, pick(four, t, v)));
    g = pick(hn::Or(one, two), v, pick(three, q, pick(hn::Or(four, five), p, t)));
    b = pick(two, t, pick(hn::Or(three, four), v, pick(five, q, p)));
  });
}

// ---- Sharpness ----

// Sums of three rows' bytes, the even and the odd ones; there is memory before and behind them.
struct ColumnSums {
  uint16_t* evens;
  uint16_t* odds;

  void add(const uint8_t* above, const uint8_t* row, const uint8_t* below, size_t bytes) const {
    for (size_t i = 0; i < bytes; i += kLanes) {
      const Bytes a = hn::LoadU(kBytes, above + i);
      const Bytes b = hn::LoadU(kBytes, row + i);
      const Bytes c = hn::LoadU(kBytes, below + i);
      hn::StoreU(hn::Add(hn::Add(even(a), even(b)), even(c)), kHalves, evens + i / 2);
      hn::StoreU(hn::Add(hn::Add(odd(a), odd(b)), odd(c)), kHalves, odds + i / 2);
    }
  }

  // The smoothed bytes from `at` on, of the middle row's `bytes`.
  [[nodiscard]] HWY_INLINE Bytes smooth(size_t at, Bytes bytes) const {
    const uint16_t* const e = evens + at / 2;
    const uint16_t* const o = odds + at / 2;
    const Halves low = smooth(o - 2, e, o + 1, even(bytes));
    const Halves high = smooth(e - 1, o, e + 2, odd(bytes));
    return hn::BitCast(kBytes, hn::Or(low, hn::ShiftLeft<8>(high)));
  }

 private:
  static HWY_INLINE Halves smooth(const uint16_t* left, const uint16_t* middle,
                                  const uint16_t* right, Halves bytes) {
    const auto load = [](const uint16_t* from) HWY_ATTR { return hn::LoadU(kHalves, from); };
    const Halves around = hn::Add(hn::Add(load(left), load(middle)), load(right));
    const Halves sum = hn::Add(around, hn::ShiftLeft<2>(bytes));
    const Halves twice = hn::Add(hn::Add(sum, sum), hn::Set(kHalves, uint16_t{13}));
    // / 26, exact for all sums
    return hn::ShiftRight<3>(hn::MulHigh(twice, hn::Set(kHalves, uint16_t{20165})));
  }
};

void sharpen(uint8_t* rgb, size_t row_bytes, size_t rows, float factor, uint8_t* scratch) {
  const Floats by = factors(factor);
  const size_t run = (row_bytes + kLanes - 1) / kLanes * kLanes;
  uint8_t* above = scratch;  // as it was: the picture has the new one already
  uint8_t* row = above + run;
  auto* const sums = reinterpret_cast<uint16_t*>(row + run) + kLanes;
  const ColumnSums columns{sums, sums + run / 2 + kLanes};
  // A carry of what nobody uses would reach the first byte that is used.
  columns.evens[-1] = columns.odds[-1] = columns.odds[-2] = 0;
  std::memcpy(above, rgb, row_bytes);
  uint8_t* out = rgb + row_bytes;
  for (size_t y = 1; y + 1 < rows; ++y, out += row_bytes) {
    std::memcpy(row, out, row_bytes);
    columns.add(above, row, out + row_bytes, row_bytes);
    const auto sharp = [&](size_t at) HWY_ATTR {
      const Bytes before = hn::LoadU(kBytes, row + at);
      return blended(Raised(columns.smooth(at, before)), before, by);
    };
    size_t i = 0;
    for (; i + kLanes <= row_bytes; i += kLanes) hn::StoreU(sharp(i), kBytes, out + i);
    alignas(64) uint8_t rest[kLanes];
    hn::Store(sharp(i), kBytes, rest);
    std::memcpy(out + i, rest, row_bytes - i);
    std::memcpy(out, row, 3);
    std::memcpy(out + row_bytes - 3, row + row_bytes - 3, 3);
    std::swap(above, row);
  }
}

}  // namespace

constinit const PointKernels kPointKernels{look_up,  look_up_each, permute, extremes, grayscale,
                                           luma_sum, saturation,   hue,     sharpen};

}  // namespace fastload::FASTLOAD_LEVEL
