// The kernels of pointwise.h, over a vector of each channel's bytes. Numbers of 32 bits are made of
// every fourth byte, and so become bytes again without a shuffle.
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
  for (size_t i = 0; i < 3; ++i) hn::StoreU(gathered(r, g, b, kPlaces.join[i]), kBytes, rgb + 64 * i);
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

// Of the bytes 4 i + kByte, and back.
template <int kByte>
HWY_INLINE Ints widened(Bytes v) {
  const auto words = hn::BitCast(hn::RebindToUnsigned<decltype(kInts)>(), v);
  const auto low = hn::Set(hn::RebindToUnsigned<decltype(kInts)>(), 255U);
  return hn::BitCast(kInts, hn::And(hn::ShiftRight<8 * kByte>(words), low));
}
template <int kByte>
HWY_INLINE Floats floats(Bytes v) {
  return hn::ConvertTo(kFloats, widened<kByte>(v));
}
template <int kByte>
HWY_INLINE Bytes narrowed(Ints v) {
  return hn::BitCast(kBytes, hn::ShiftLeft<8 * kByte>(v));
}

// ---- Tables ----

class Table {
 public:
  explicit Table(const ByteTable& from) {
    for (size_t i = 0; i < std::size(parts_); ++i) {
      parts_[i] = kWhole ? hn::LoadU(kBytes, from.data() + kLanes * i)
                         : hn::LoadDup128(kBytes, from.data() + 16 * i);
    }
  }

  [[nodiscard]] HWY_INLINE Bytes of(Bytes x) const {
#if HWY_TARGET == HWY_EMU128
    for (uint8_t& value : x.raw) value = parts_[value / 16].raw[value % 16];
    return x;
#elif HWY_TARGET == HWY_AVX3
    const Bytes low{_mm512_permutex2var_epi8(parts_[0].raw, x.raw, parts_[1].raw)};
    const Bytes high{_mm512_permutex2var_epi8(parts_[2].raw, x.raw, parts_[3].raw)};
    return hn::IfThenElse(hn::MaskFromVec(x), high, low);
#elif HWY_TARGET == HWY_NEON
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
    const Bytes low = hn::And(x, bytes(15));
    const auto halves = hn::BitCast(kHalves, x);
    const auto choose = [&](auto bit, Bytes yes, Bytes no) HWY_ATTR {
      const hn::RebindToSigned<decltype(kBytes)> by_sign;
      const auto chosen = hn::IfNegativeThenElse(hn::BitCast(by_sign, bit),
                                                 hn::BitCast(by_sign, yes), hn::BitCast(by_sign, no));
      return hn::BitCast(kBytes, chosen);
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
    return choose(halves, eight(8), eight(0));
#endif
  }

 private:
  static constexpr bool kWhole = HWY_TARGET == HWY_AVX3;
  Bytes parts_[kWhole ? 4 : 16];
};

void look_up(uint8_t* rgb, size_t bytes, const ByteTable& table) {
  const Table in_registers(table);
  for (; bytes >= kLanes; bytes -= kLanes, rgb += kLanes) {
    hn::StoreU(in_registers.of(hn::LoadU(kBytes, rgb)), kBytes, rgb);
  }
  for (size_t i = 0; i < bytes; ++i) rgb[i] = table[rgb[i]];
}

void look_up_each(uint8_t* rgb, size_t pixels, const ByteTable* tables) {
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

// Bytes as floats from 2^23 on, whose last bits they are.
struct Raised {
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

// blended() of bytes.
class Blend {
 public:
  // Beyond a million, all differences become 0 or 255.
  explicit Blend(float factor) : factor_(floats(std::clamp(factor, -1e6f, 1e6f))) {}

  [[nodiscard]] HWY_INLINE Bytes of(const Raised& from, const Raised& to) const {
    const auto halves = [&](size_t i) HWY_ATTR {
      return hn::ReorderDemote2To(kShorts, part(from.part[i], to.part[i]),
                                  part(from.part[i + 1], to.part[i + 1]));
    };
    return pack_bytes(kBytes, halves(0), halves(2));  // which saturate
  }

 private:
  [[nodiscard]] HWY_INLINE Ints part(Floats from, Floats to) const {
    const Floats x = hn::Sub(from, floats(8388608.0f));
    return truncated(kInts, hn::Add(x, hn::Mul(factor_, hn::Sub(to, from))));
  }

  Floats factor_;
};

void saturation(uint8_t* rgb, size_t pixels, float factor) {
  const Luma luma;
  const Blend blend(factor);
  change(rgb, pixels, [&](Bytes& r, Bytes& g, Bytes& b) HWY_ATTR {
    const Raised gray(luma.of(r, g, b));
    r = blend.of(gray, Raised(r));
    g = blend.of(gray, Raised(g));
    b = blend.of(gray, Raised(b));
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

// A colour as HSV says it: hue = base + sign * part / range, in sixths of a turn.
struct Hues {
  Bytes most, range, part, base, sign;

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
    const Bytes first = hn::IfThenElse(red_or_green, bytes(1), bytes(3));
    const Bytes second =
        hn::IfThenElse(red, bytes(-1), hn::IfThenElse(red_or_green, bytes(3), bytes(5)));
    base = hn::IfThenElse(other, first, second);
    sign = hn::IfThenElse(hn::Xor(other, red), bytes(1), bytes(-1));
  }
};

template <int kByte>
HWY_INLINE Floats signed_floats(Bytes v) {
  const Ints top = hn::ShiftLeft<24 - 8 * kByte>(hn::BitCast(kInts, v));
  return hn::ConvertTo(kFloats, hn::ShiftRight<24>(top));
}

// What the colours of a turned hue consist of, beside hues.most.
struct Turned {
  Bytes sector = hn::Zero(kBytes), low = sector, falling = sector, rising = sector;

  // libImaging/Convert.c, rgb2hsv_row and hsv2rgb_row. Pillow computes in double here and there:
  // float gives the same bytes (all colours, all shifts), if 255 h is not rounded up to a whole
  // number.
  template <int kByte>
  HWY_INLINE void turn(const Hues& hues, Ints shift) {
    // Gray has no saturation, whatever its hue; 1 keeps the divisions out of trouble.
    const Floats one = floats(1.0f);
    const Floats range = floats<kByte>(hues.range);
    const Floats value = floats<kByte>(hues.most);
    const Floats q = hn::Div(floats<kByte>(hues.part), hn::Max(range, one));
    const Floats signed_part = hn::Mul(signed_floats<kByte>(hues.sign), q);
    Floats hue = quotient(hn::Add(signed_floats<kByte>(hues.base), signed_part), 6.0f);
    hue = hn::Add(hue, hn::IfThenElseZero(hn::Lt(hue, hn::Zero(kFloats)), one));
    const Ints near = truncated(kInts, hn::Mul(hue, floats(255.0f)));
    // 255 h < near, exactly: 256 h - near has no more than 24 bits.
    const Floats above = hn::Sub(hn::Mul(hue, floats(256.0f)), hn::ConvertTo(kFloats, near));
    const Ints beyond = hn::VecFromMask(kInts, hn::RebindMask(kInts, hn::Lt(above, hue)));
    const Ints turned = hn::And(hn::Add(hn::Add(near, beyond), shift), hn::Set(kInts, 255));
    const auto twice = hn::MulHigh(hn::BitCast(kHalves, turned), hn::Set(kHalves, uint16_t{1543}));
    const Ints at = hn::BitCast(kInts, twice);  // 6 * turned / 255
    const Floats sixths = hn::Mul(hn::ConvertTo(kFloats, turned), floats(6.0f));
    const Floats f = quotient(
        hn::Sub(sixths, hn::Mul(hn::ConvertTo(kFloats, at), floats(255.0f))), 255.0f);
    const Ints saturated =
        truncated(kInts, hn::Mul(floats(255.0f), hn::Div(range, hn::Max(value, one))));
    const Floats s = quotient(hn::ConvertTo(kFloats, saturated), 255.0f);
    const auto add = [&](Bytes& to, Floats part) HWY_ATTR {
      const Floats left = hn::Mul(value, hn::Sub(one, part));
      to = hn::Or(to, narrowed<kByte>(truncated(kInts, hn::Add(left, floats(0.5f)))));
    };
    add(low, s);
    add(falling, hn::Mul(s, f));
    add(rising, hn::Mul(s, hn::Sub(one, f)));
    sector = hn::Or(sector, narrowed<kByte>(at));
  }
};

void hue(uint8_t* rgb, size_t pixels, uint8_t shift) {
  const Ints by = hn::Set(kInts, shift);
  change(rgb, pixels, [&](Bytes& r, Bytes& g, Bytes& b) HWY_ATTR {
    const Hues hues(r, g, b);
    Turned turned;
    turned.turn<0>(hues, by);
    turned.turn<1>(hues, by);
    turned.turn<2>(hues, by);
    turned.turn<3>(hues, by);
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

// Sums of three rows' bytes, the even and the odd ones, a pixel and more before and behind them.
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
  const Blend blend(factor);
  const size_t run = (row_bytes + kLanes - 1) / kLanes * kLanes;
  uint8_t* above = scratch;  // as it was: the picture has the new one already
  uint8_t* row = above + run;
  auto* const sums = reinterpret_cast<uint16_t*>(row + run) + kLanes;
  const ColumnSums columns{sums, sums + run / 2 + kLanes};
  std::memcpy(above, rgb, row_bytes);
  uint8_t* out = rgb + row_bytes;
  for (size_t y = 1; y + 1 < rows; ++y, out += row_bytes) {
    std::memcpy(row, out, row_bytes);
    columns.add(above, row, out + row_bytes, row_bytes);
    const auto sharp = [&](size_t at) HWY_ATTR {
      const Bytes before = hn::LoadU(kBytes, row + at);
      return blend.of(Raised(columns.smooth(at, before)), Raised(before));
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
