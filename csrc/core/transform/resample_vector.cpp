// The resize, but for AVX-512 (resample_avx512.cpp).
#include <algorithm>
#include <cstring>

#include "transform/axis.h"
#include "transform/kernels.h"
// Behind the others:
#include "base/highway.h"

namespace fastload::FASTLOAD_LEVEL {

#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2

// A weight is w = 2^16 high + low, both signed, and Pillow's integer sum is 2^16 (p.high) + p.low + half. Pairs of
// taps are multiplied and added up at once: bytes by bytes (pmaddubsw), as high is at most 83 (Lanczos beside a
// border) and a pair of them at most 128; and 16 by 16 bits (pmaddwd). Of the sum, bits 16 to 31 do, in which
// p.high is taken modulo 2^16: with half they are divided by 2^6.
namespace {

constexpr hn::ScalableTag<uint8_t> kBytes;
constexpr hn::ScalableTag<int16_t> kShort;
constexpr hn::ScalableTag<int32_t> kWide;
using Bytes = hn::Vec<hn::ScalableTag<uint8_t>>;
using Short = hn::Vec<hn::ScalableTag<int16_t>>;
using Wide = hn::Vec<hn::ScalableTag<int32_t>>;

constexpr int kPair = 2;                                           // taps of a product
constexpr int kVector = static_cast<int>(hn::MaxLanes(kWide));     // 32-bit lanes
constexpr int kParts = kVector / 4;                                // 16 bytes each
constexpr int kGroup = 8;                                          // output pixels of a part of a block
constexpr int kBlock = kGroup * kParts;                            // output pixels stored together

Short multiply_bytes(Bytes pixels, Bytes weights) {
#if HWY_TARGET == HWY_AVX2
  return Short{_mm256_maddubs_epi16(pixels.raw, weights.raw)};
#else
  return Short{_mm_maddubs_epi16(pixels.raw, weights.raw)};
#endif
}

// In each 16 bytes: a's, then b's.
Bytes saturate(Short a, Short b) {
#if HWY_TARGET == HWY_AVX2
  return Bytes{_mm256_packus_epi16(a.raw, b.raw)};
#else
  return Bytes{_mm_packus_epi16(a.raw, b.raw)};
#endif
}

// The weights of a pair of taps: of 16-bit lanes, and of the even and the odd ones.
struct Weights {
  Bytes high;
  Short even, odd;
};

struct Sums {
  Short high = hn::Zero(kShort);
  Wide even = hn::Zero(kWide), odd = hn::Zero(kWide);

  // Two taps to a lane of 16 bits.
  HWY_INLINE void add(Bytes taps, const Weights& weights) {
    alignas(16) static constexpr uint8_t kEven[16] = {0, 128, 1, 128, 4,  128, 5,  128,
                                                      8, 128, 9, 128, 12, 128, 13, 128};
    alignas(16) static constexpr uint8_t kOdd[16] = {2,  128, 3,  128, 6,  128, 7,  128,
                                                     10, 128, 11, 128, 14, 128, 15, 128};
    const auto product = [&](const uint8_t* lanes, Short by) {
      const Bytes two = hn::TableLookupBytesOr0(taps, hn::LoadDup128(kBytes, lanes));
      Wide none = hn::Zero(kWide);
      return hn::ReorderWidenMulAccumulate(kWide, hn::BitCast(kShort, two), by, hn::Zero(kWide), none);
    };
    high = hn::Add(high, multiply_bytes(taps, weights.high));
    even = hn::Add(even, product(kEven, weights.even));
    odd = hn::Add(odd, product(kOdd, weights.odd));
  }

  // What 8 bits do not hold is below 0 or above 255.
  [[nodiscard]] HWY_INLINE Short rounded() const {
    const Short low = hn::OddEven(hn::BitCast(kShort, odd), hn::BitCast(kShort, hn::ShiftRight<16>(even)));
    return hn::MulFixedPoint15(hn::Add(high, low), hn::Set(kShort, 1 << (15 - (kPrecisionBits - 16))));
  }
};

// Which output pixels the 16-bit lanes of a vector are, and how their source pixels are loaded.
enum Way : int {
  kDense,   // 8 output bytes in 16 bytes, whose pixels 16 bytes of the source hold
  kSpaced,  // R, G, B, unused of 2 pixels, whose pixels 16 bytes of the source hold
  kApart,   // the same, by a load for each pixel
};
constexpr int vectors_of(Way way) { return way == kDense ? 3 : 4; }  // in a block

// Of the lanes of a part: the pixel in the group, and its channel.
struct Lane {
  int pixel, channel;
};
constexpr Lane lane_of(Way way, int vector, int lane) {
  const int at = 8 * vector + lane;
  return way == kDense ? Lane{at / 3, at % 3} : Lane{at / 4, at % 4 % 3};
}

// Axis::packed for the horizontal pass has for each vector: the byte offsets of its source pixels, the bytes that
// the lanes take of those, and for each pair of taps the weights: high, even lanes' low, odd lanes' low.
struct Layout {
  int pairs, vector_size;
  explicit Layout(const Axis& axis)
      : pairs(axis.taps / kPair), vector_size(kVector * (2 + 3 * pairs)) {}
};

// The words of the lanes of a vector among those of a group's pixels, for TableLookupBytes. Even lanes come first.
struct Spread {
  alignas(16) uint8_t high[4][16] = {};
  alignas(16) uint8_t low[4][16] = {};
  constexpr explicit Spread(Way way) {
    for (int v = 0; v < vectors_of(way); ++v) {
      for (int lane = 0; lane < 8; ++lane) {
        for (int byte = 0; byte < 2; ++byte) {
          const int from = 2 * lane_of(way, v, lane).pixel + byte;
          high[v][2 * lane + byte] = static_cast<uint8_t>(from);
          low[v][2 * (lane / 2 + lane % 2 * 4) + byte] = static_cast<uint8_t>(from);
        }
      }
    }
  }
};

// The offsets and bytes of one part of a vector; whether 16 bytes hold its pixels.
template <Way kWay>
bool pack_part(const int32_t* first, int vector, int32_t* offsets, uint8_t* index) {
  int at[8];
  int least = 1 << 30;
  int most = 0;
  for (int i = 0; i < 8; ++i) {
    const Lane lane = lane_of(kWay, vector, i);
    at[i] = 3 * first[lane.pixel] + lane.channel;
    least = std::min(least, at[i]);
    most = std::max(most, at[i]);
  }
  offsets[0] = least;
  if constexpr (kWay == kApart) {
    offsets[0] = at[0];
    offsets[1] = at[4];
    for (int i = 0; i < 8; ++i) at[i] = 8 * (i / 4) + i % 4 % 3;
    least = 0;
  }
  for (int i = 0; i < 8; ++i) {
    index[2 * i] = static_cast<uint8_t>(at[i] - least);
    index[2 * i + 1] = static_cast<uint8_t>(at[i] - least + 3);
  }
  return kWay == kApart || most - least + 3 < 16;
}

template <Way kWay>
bool pack_offsets(Axis& axis) {
  const Layout layout(axis);
  int32_t* to = axis.packed.data();
  for (int j = 0; j < axis.stride; j += kBlock) {
    for (int v = 0; v < vectors_of(kWay); ++v, to += layout.vector_size) {
      auto* const index = reinterpret_cast<uint8_t*>(to + kVector);
      for (int part = 0; part < kParts; ++part) {
        const int32_t* const first = axis.first.data() + j + kGroup * part;
        if (!pack_part<kWay>(first, v, to + (kWay == kApart ? 2 : 1) * part, index + 16 * part)) return false;
      }
    }
  }
  return true;
}

// Taps t and t + 1 of a group: the lower 16 bits of each, and the upper ones as two bytes.
struct Pairs {
  alignas(16) int16_t low[kPair][kGroup];
  alignas(16) uint16_t high[kGroup];
  Pairs(const Axis& axis, int t, int j) {
    const int32_t* const one = axis.weights.data() + static_cast<size_t>(t) * axis.stride + j;
    const int32_t* const other = one + axis.stride;
    const auto upper = [](int32_t w) { return static_cast<uint32_t>((w + (1 << 15)) >> 16); };
    for (int i = 0; i < kGroup; ++i) {
      low[0][i] = static_cast<int16_t>(one[i]);
      low[1][i] = static_cast<int16_t>(other[i]);
      high[i] = static_cast<uint16_t>((upper(one[i]) & 0xFF) | upper(other[i]) << 8);
    }
  }
};

template <Way kWay>
void pack_weights(Axis& axis) {
  static constexpr Spread kSpread(kWay);
  constexpr hn::Full128<uint8_t> d;
  constexpr hn::Full128<int16_t> words;
  const Layout layout(axis);
  for (int j = 0; j < axis.stride; j += kGroup) {
    const size_t vectors = static_cast<size_t>(j / kBlock) * vectors_of(kWay);
    int32_t* const block = axis.packed.data() + vectors * layout.vector_size + j % kBlock / kGroup * 4;
    for (int pair = 0; pair < layout.pairs; ++pair) {
      const Pairs weights(axis, kPair * pair, j);
      const auto spread = [&](const void* from, const uint8_t* by) {
        const auto bytes = hn::Load(d, static_cast<const uint8_t*>(from));
        return hn::BitCast(words, hn::TableLookupBytes(bytes, hn::Load(d, by)));
      };
      for (int v = 0; v < vectors_of(kWay); ++v) {
        auto* const to = reinterpret_cast<int16_t*>(block + v * layout.vector_size + kVector * (2 + 3 * pair));
        const auto one = spread(weights.low[0], kSpread.low[v]);
        const auto other = spread(weights.low[1], kSpread.low[v]);
        hn::Store(spread(weights.high, kSpread.high[v]), words, to);
        hn::Store(hn::InterleaveLower(words, one, other), words, to + 2 * kVector);
        hn::Store(hn::InterleaveUpper(words, one, other), words, to + 4 * kVector);
      }
    }
  }
}

void pack_horizontal(Axis& axis) {
  const Layout layout(axis);
  axis.packed.reserve(static_cast<size_t>(layout.vector_size) * (axis.stride / kBlock) * vectors_of(kApart));
  if (pack_offsets<kDense>(axis)) {
    axis.way = kDense;
    return pack_weights<kDense>(axis);
  }
  axis.way = kSpaced;
  if (!pack_offsets<kSpaced>(axis)) {
    axis.way = kApart;
    pack_offsets<kApart>(axis);
  }
  pack_weights<kSpaced>(axis);
}

// The 16 bytes of each part.
template <Way kWay>
HWY_INLINE Bytes load_pixels(const uint8_t* line, const int32_t* offsets) {
  const auto part = [&](int i) {
    constexpr hn::Full128<uint8_t> d;
    if constexpr (kWay != kApart) return hn::LoadU(d, line + offsets[i]);
    constexpr hn::Full64<uint8_t> half;
    return hn::Combine(d, hn::LoadU(half, line + offsets[2 * i + 1]), hn::LoadU(half, line + offsets[2 * i]));
  };
#if HWY_TARGET == HWY_AVX2
  return hn::Combine(kBytes, part(1), part(0));
#else
  return part(0);
#endif
}

// One vector of outputs of a line. kPairs: pairs of taps; 0: `pairs`.
template <Way kWay, int kPairs>
HWY_INLINE Short outputs(const uint8_t* line, const int32_t* vector, int pairs) {
  const Bytes index = hn::Load(kBytes, reinterpret_cast<const uint8_t*>(vector + kVector));
  const auto* weights = reinterpret_cast<const int16_t*>(vector + 2 * kVector);
  Sums sums;
  for (int pair = 0; pair < (kPairs > 0 ? kPairs : pairs); ++pair) {
    const Bytes taps = hn::TableLookupBytes(load_pixels<kWay>(line, vector), index);
    sums.add(taps, {hn::BitCast(kBytes, hn::Load(kShort, weights)), hn::Load(kShort, weights + 2 * kVector),
                    hn::Load(kShort, weights + 4 * kVector)});
    line += 3 * kPair;
    weights += 6 * kVector;
  }
  return sums.rounded();
}

// Where a vector is 32 bytes: its halves.
HWY_INLINE void store_part(Bytes bytes, [[maybe_unused]] int part, uint8_t* to) {
  constexpr hn::Full128<uint8_t> d;
#if HWY_TARGET == HWY_AVX2
  hn::StoreU(part == 0 ? hn::LowerHalf(d, bytes) : hn::UpperHalf(d, bytes), d, to);
#else
  hn::StoreU(bytes, d, to);
#endif
}

// Of a group's 24 bytes 16 or 12 are in one vector, the others in the next. What is stored behind them is
// overwritten.
template <Way kWay>
HWY_INLINE void store_block(const Short* outputs, uint8_t* to) {
  alignas(16) static constexpr uint8_t kDropFourth[16] = {0,  1,  2,  4,  5,   6,   8,   9,
                                                          10, 12, 13, 14, 128, 128, 128, 128};
  Bytes front = saturate(outputs[0], outputs[1]);
  Bytes back = saturate(outputs[2], outputs[vectors_of(kWay) - 1]);
  if constexpr (kWay != kDense) {
    const Bytes pixels = hn::LoadDup128(kBytes, kDropFourth);
    front = hn::TableLookupBytes(front, pixels);
    back = hn::TableLookupBytes(back, pixels);
  }
  for (int part = 0; part < kParts; ++part, to += 3 * kGroup) {
    store_part(front, part, to);
    store_part(back, part, to + (kWay == kDense ? 16 : 12));
  }
}

template <Way kWay, int kPairs>
void lines(const Axis& axis, const uint8_t* const* in, uint8_t* const* out, int rows) {
  const Layout layout(axis);
  const int32_t* vector = axis.packed.data();
  for (int j = 0; j < axis.stride; j += kBlock) {
    Short results[ResampleKernels::kBatch][vectors_of(kWay)];
    for (int v = 0; v < vectors_of(kWay); ++v, vector += layout.vector_size) {
      for (int r = 0; r < rows; ++r) results[r][v] = outputs<kWay, kPairs>(in[r], vector, layout.pairs);
    }
    for (int r = 0; r < rows; ++r) store_block<kWay>(results[r], out[r] + 3 * static_cast<size_t>(j));
  }
}

template <Way kWay>
void near_lines(const Axis& axis, const uint8_t* const* in, uint8_t* const* out, int rows) {
  if (axis.taps == kPair) return lines<kWay, 1>(axis, in, out, rows);
  if (axis.taps == 2 * kPair) return lines<kWay, 2>(axis, in, out, rows);
  if (axis.taps == 3 * kPair) return lines<kWay, 3>(axis, in, out, rows);
  lines<kWay, 0>(axis, in, out, rows);
}

void horizontal(const Axis& axis, const uint8_t* const* in, uint8_t* const* out, int rows) {
  if (axis.way == kDense) return near_lines<kDense>(axis, in, out, rows);
  if (axis.way == kSpaced) return near_lines<kSpaced>(axis, in, out, rows);
  lines<kApart, 0>(axis, in, out, rows);
}

// packed[t * stride + j] for output line j: the low weights of taps t and t + 1, and at t + 1 the high ones, twice.
void pack_vertical(Axis& axis) {
  axis.packed.reserve(static_cast<size_t>(axis.taps) * axis.stride);
  for (int t = 0; t < axis.taps; t += kPair) {
    int32_t* const to = axis.packed.data() + static_cast<size_t>(t) * axis.stride;
    for (int j = 0; j < axis.stride; j += kGroup) {
      const Pairs pairs(axis, t, j);
      for (int i = 0; i < kGroup; ++i) {
        to[j + i] = static_cast<uint16_t>(pairs.low[0][i]) | pairs.low[1][i] * (1 << 16);
        to[axis.stride + j + i] = pairs.high[i] * 0x10001;
      }
    }
  }
}

template <int kPairs>
void vertical_line(const Axis& axis, int j, const uint8_t* const* in, size_t bytes, uint8_t* out) {
  const int pairs = kPairs > 0 ? kPairs : axis.taps / kPair;
  for (size_t x = 0; x < bytes; x += hn::MaxLanes(kBytes)) {
    Sums lower, upper;
    const int32_t* weights = axis.packed.data() + j;
    for (int pair = 0; pair < pairs; ++pair, weights += static_cast<size_t>(2) * axis.stride) {
      const Bytes a = hn::LoadU(kBytes, in[kPair * pair] + x);
      const Bytes b = hn::LoadU(kBytes, in[kPair * pair + 1] + x);
      const Short low = hn::BitCast(kShort, hn::Set(kWide, weights[0]));
      const Weights both{hn::BitCast(kBytes, hn::Set(kWide, weights[axis.stride])), low, low};
      lower.add(hn::InterleaveLower(kBytes, a, b), both);
      upper.add(hn::InterleaveUpper(kBytes, a, b), both);
    }
    hn::StoreU(saturate(lower.rounded(), upper.rounded()), kBytes, out + x);
  }
}

void vertical(const Axis& axis, int j, const uint8_t* const* in, size_t bytes, uint8_t* out) {
  if (axis.taps == kPair) return vertical_line<1>(axis, j, in, bytes, out);
  if (axis.taps == 2 * kPair) return vertical_line<2>(axis, j, in, bytes, out);
  vertical_line<0>(axis, j, in, bytes, out);
}

}  // namespace

const ResampleKernels kResample{kPair, kPair, pack_horizontal, pack_vertical, horizontal, vertical};

#elif HWY_TARGET != HWY_AVX3

// Pillow's integer sums as they are, in 32-bit lanes.
namespace {

constexpr hn::Full128<uint8_t> kBytes;
constexpr hn::Full128<int16_t> kShort;
constexpr hn::Full128<int32_t> kWide;
using Bytes = hn::Vec<hn::Full128<uint8_t>>;
using Wide = hn::Vec<hn::Full128<int32_t>>;

constexpr int kChunk = 4;    // taps of one 16-byte load of RGB pixels
constexpr int kOutputs = 4;  // output pixels whose results are packed and stored together

// packed[j * taps + t]: an output pixel's weights side by side.
void pack_horizontal(Axis& axis) {
  axis.packed.reserve(static_cast<size_t>(axis.taps) * axis.stride);
  int32_t* to = axis.packed.data();
  for (int j = 0; j < axis.stride; ++j) {
    const int32_t* from = axis.weights.data() + j;
    for (int t = 0; t < axis.taps; ++t, from += axis.stride) *to++ = *from;
  }
}

void pack_nothing(Axis&) {}

// sums >> 22, clipped to bytes.
Bytes bytes_of(const Wide* sums) {
  const auto pack = [&](int i) {
    return hn::ReorderDemote2To(kShort, hn::ShiftRight<16>(sums[i]), hn::ShiftRight<16>(sums[i + 1]));
  };
  constexpr hn::Half<hn::Full128<uint8_t>> half;
  const auto bytes = [&](auto shorts) { return hn::DemoteTo(half, hn::ShiftRight<kPrecisionBits - 16>(shorts)); };
  return hn::Combine(kBytes, bytes(pack(2)), bytes(pack(0)));
}

// R, G, B and something of a tap.
template <int kTap>
Wide pixel(const uint8_t* taps) {
#if HWY_TARGET == HWY_EMU128
  return hn::PromoteTo(kWide, hn::LoadU(hn::Rebind<uint8_t, decltype(kWide)>(), taps + 3 * kTap));
#else
  constexpr uint8_t r = 3 * kTap, none = 0x80;
  alignas(16) static constexpr uint8_t kIndex[16] = {
      r, none, none, none, r + 1, none, none, none, r + 2, none, none, none, none, none, none, none};
  const Bytes pixels = hn::LoadU(kBytes, taps);
  return hn::BitCast(kWide, hn::TableLookupBytesOr0(pixels, hn::Load(kBytes, kIndex)));
#endif
}

// One output pixel: its sums of R, G and B.
Wide output(const uint8_t* in, const int32_t* weights, int taps) {
  Wide sum = hn::Set(kWide, kRounding);
  for (int t = 0; t < taps; t += kChunk) {
    const uint8_t* const pixels = in + 3 * static_cast<size_t>(t);
    sum = hn::Add(sum, hn::Mul(pixel<0>(pixels), hn::Set(kWide, weights[t])));
    sum = hn::Add(sum, hn::Mul(pixel<1>(pixels), hn::Set(kWide, weights[t + 1])));
    sum = hn::Add(sum, hn::Mul(pixel<2>(pixels), hn::Set(kWide, weights[t + 2])));
    sum = hn::Add(sum, hn::Mul(pixel<3>(pixels), hn::Set(kWide, weights[t + 3])));
  }
  return sum;
}

void horizontal(const Axis& axis, const uint8_t* const* in, uint8_t* const* out, int rows) {
  alignas(16) static constexpr uint8_t kDropFourth[16] = {0,  1,  2,  4,  5,  6,  8,  9,
                                                          10, 12, 13, 14, 15, 15, 15, 15};
  for (int r = 0; r < rows; ++r) {
    const int32_t* weights = axis.packed.data();
    for (int j = 0; j < axis.stride; j += kOutputs) {
      Wide sums[kOutputs];
      for (int i = 0; i < kOutputs; ++i, weights += axis.taps) {
        sums[i] = output(in[r] + 3 * static_cast<size_t>(axis.first[j + i]), weights, axis.taps);
      }
      const Bytes pixels = hn::TableLookupBytes(bytes_of(sums), hn::Load(kBytes, kDropFourth));
      hn::StoreU(pixels, kBytes, out[r] + 3 * static_cast<size_t>(j));
    }
  }
}

void vertical(const Axis& axis, int j, const uint8_t* const* in, size_t bytes, uint8_t* out) {
  constexpr hn::Full128<uint16_t> words;
  constexpr hn::Half<decltype(words)> four;
  for (size_t x = 0; x < bytes; x += 16) {
    Wide sums[4];
    for (Wide& sum : sums) sum = hn::Set(kWide, kRounding);
    const int32_t* weight = axis.weights.data() + j;
    for (int t = 0; t < axis.taps; ++t, weight += axis.stride) {
      const Bytes samples = hn::LoadU(kBytes, in[t] + x);
      const auto front = hn::PromoteTo(words, hn::LowerHalf(samples));
      const auto back = hn::PromoteTo(words, hn::UpperHalf(hn::Half<decltype(kBytes)>(), samples));
      const auto add = [&](int i, auto samples_of) {
        sums[i] = hn::Add(sums[i], hn::Mul(hn::PromoteTo(kWide, samples_of), hn::Set(kWide, *weight)));
      };
      add(0, hn::LowerHalf(four, front));
      add(1, hn::UpperHalf(four, front));
      add(2, hn::LowerHalf(four, back));
      add(3, hn::UpperHalf(four, back));
    }
    hn::StoreU(bytes_of(sums), kBytes, out + x);
  }
}

}  // namespace

const ResampleKernels kResample{kChunk, 1, pack_horizontal, pack_nothing, horizontal, vertical};

#endif

}  // namespace fastload::FASTLOAD_LEVEL
