// The resize on every level.
#include <algorithm>
#include <array>
#include <cstring>

#include "transform/axis.h"
#include "transform/kernels.h"
#include "transform/resample_any.h"
// Behind the others:
#include "base/highway.h"

namespace fastload::FASTLOAD_LEVEL {

#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

namespace {

constexpr hn::ScalableTag<uint8_t> kBytes;
constexpr hn::ScalableTag<int16_t> kShort;
constexpr hn::ScalableTag<int32_t> kWide;
using Bytes = hn::Vec<hn::ScalableTag<uint8_t>>;
using Short = hn::Vec<hn::ScalableTag<int16_t>>;
using Wide = hn::Vec<hn::ScalableTag<int32_t>>;
using Part = hn::Full128<uint8_t>;
constexpr int kVector = static_cast<int>(hn::MaxLanes(kWide));  // 32-bit lanes

// Which output pixels the lanes of a vector are, and how their source pixels are loaded.
enum Way : int {
  kDense,     // an output byte to a lane; one load has the source pixels of all
  kMirrored,  // the same, blue before green before red, so that a mirrored line is read in order
  kSpaced,    // R, G, B, unused of each pixel; one load has the source pixels of all
  kApart,     // the same, by a load for each pixel
};
constexpr bool is_dense(Way way) { return way == kDense || way == kMirrored; }
constexpr int vectors_of(Way way) { return is_dense(way) ? 3 : 4; }  // in a block
// The lane of an output byte among those of all vectors.
constexpr int lane_of(Way way, int byte) {
  if (way == kDense) return byte;
  return way == kMirrored ? byte / 3 * 3 + 2 - byte % 3 : byte / 3 * 4 + byte % 3;
}

// Of a chunk of kTaps taps, for each lane.
struct Weights {
  Wide planes[3];
};

// ---- What differs: sums of products, and the lanes that they are in ----

#if HWY_TARGET == HWY_AVX3

// With VNNI a weight is three signed bytes, w = b0 + 2^8 b1 + 2^16 b2, so that vpdpbusd (four
// unsigned times four signed bytes, summed exactly into 32 bits) does four taps at once:
// ((half + p.b2) * 2^8 + p.b1) * 2^8 + p.b0 is Pillow's integer sum, modulo 2^32.
constexpr int kTaps = 4;    // of a lane
constexpr int kLoad = 64;   // bytes of the source for the lanes of a group
constexpr int kGroup = 16;  // output pixels that have a lane each while weights are packed
constexpr hn::ScalableTag<int32_t> kLanes;
using Result = Wide;
constexpr int32_t kEachTap = 0x01010101, kNextTaps = 0x09060300;
constexpr int kLinePlanes = 3;  // of an output line, where all lanes have the same weights

struct Sums {
  Wide sums[3] = {hn::Zero(kWide), hn::Zero(kWide), hn::Set(kWide, kRounding >> 16)};

  static HWY_INLINE Wide add(Wide sum, Bytes taps, Wide weights) {
    return Wide{_mm512_dpbusd_epi32(sum.raw, taps.raw, weights.raw)};
  }
  HWY_INLINE void add(Bytes taps, const Weights& weights) {
    for (int p = 0; p < 3; ++p) sums[p] = add(sums[p], taps, weights.planes[p]);
  }
  [[nodiscard]] HWY_INLINE Result result() const {
    const Wide upper = hn::Add(hn::ShiftLeft<8>(sums[2]), sums[1]);
    return hn::Add(hn::ShiftLeft<8>(upper), sums[0]);
  }
  // The whole sum of at most four taps: shifting between the products saves the additions.
  static HWY_INLINE Result only(Bytes taps, const Weights& weights) {
    const Wide high = add(hn::Set(kWide, kRounding >> 16), taps, weights.planes[2]);
    const Wide middle = add(hn::ShiftLeft<8>(high), taps, weights.planes[1]);
    return add(hn::ShiftLeft<8>(middle), taps, weights.planes[0]);
  }
};

// Pillow's clip8 of four vectors of sums, 16 bytes by 16 bytes: of a, b, c, d.
HWY_INLINE Bytes bytes_of(const Result* sums) {
  const auto pack = [&](int v) {
    return hn::ReorderDemote2To(kShort, hn::ShiftRight<kPrecisionBits>(sums[v]),
                                hn::ShiftRight<kPrecisionBits>(sums[v + 1]));
  };
  return Bytes{_mm512_packus_epi16(pack(0).raw, pack(2).raw)};
}

// Columns of four lines, four bytes to a lane; bytes_of() brings them back in order.
HWY_INLINE void interleave(const uint8_t* const* in, size_t x, Bytes* taps) {
  const hn::Repartition<uint16_t, decltype(kBytes)> words;
  const auto two = [&](int t, auto half) {
    return hn::BitCast(
        words, half(kBytes, hn::LoadU(kBytes, in[t] + x), hn::LoadU(kBytes, in[t + 1] + x)));
  };
  const auto lower = [](auto d, auto a, auto b) { return hn::InterleaveLower(d, a, b); };
  const auto upper = [](auto d, auto a, auto b) { return hn::InterleaveUpper(d, a, b); };
  const auto low01 = two(0, lower), high01 = two(0, upper);
  const auto low23 = two(2, lower), high23 = two(2, upper);
  taps[0] = hn::BitCast(kBytes, lower(words, low01, low23));
  taps[1] = hn::BitCast(kBytes, upper(words, low01, low23));
  taps[2] = hn::BitCast(kBytes, lower(words, high01, high23));
  taps[3] = hn::BitCast(kBytes, upper(words, high01, high23));
}

// Numbers of a group's pixels for the lanes of each vector of a block, and their channels.
struct Table {
  alignas(64) int32_t pixel[4][kGroup] = {};
  alignas(64) int32_t channel[4][kGroup] = {};
  constexpr void set(int v, int lane, int from, int third) {
    pixel[v][lane] = from;
    channel[v][lane] = third;
  }
  [[nodiscard]] Wide spread(Wide of, int v) const {
    return Wide{_mm512_permutexvar_epi32(_mm512_load_si512(pixel[v]), of.raw)};
  }
};

// The bytes of the weights of taps t .. t + 3 of a group, four to a lane.
struct Split {
  Wide planes[3] = {hn::Zero(kWide), hn::Zero(kWide), hn::Zero(kWide)};
  Split(const Axis& axis, int t, int j) {
    const int32_t* from = axis.weights.data() + static_cast<size_t>(t + kTaps) * axis.stride + j;
    for (int i = 0; i < kTaps; ++i) {
      from -= axis.stride;
      Wide w = hn::LoadU(kWide, from);
      for (Wide& plane : planes) {
        plane = hn::Or(hn::ShiftLeft<8>(plane), hn::And(w, hn::Set(kWide, 0xFF)));
        w = hn::ShiftRight<8>(hn::Add(w, hn::Set(kWide, 128)));
      }
    }
  }
  void store(const Table& table, int v, int32_t* to) const {
    for (int p = 0; p < 3; ++p) hn::Store(table.spread(planes[p], v), kWide, to + kVector * p);
  }
  void store_lines(int32_t* to, int stride) const {
    for (int p = 0; p < 3; ++p) {
      hn::Store(planes[p], kWide, to + static_cast<size_t>(stride) * p);
    }
  }
};

HWY_INLINE Wide lanes_of(const int32_t* first, int begin) {
  return hn::Sub(hn::LoadU(kWide, first), hn::Set(kWide, begin));
}
// Of all lanes.
struct Extremes {
  int least, most;
  explicit Extremes(Wide lanes)
      : least(_mm512_reduce_min_epi32(lanes.raw)), most(_mm512_reduce_max_epi32(lanes.raw)) {}
};

template <Way kWay>
HWY_INLINE Bytes load_taps(const uint8_t* line, const int32_t* offsets, Bytes index) {
  if constexpr (kWay != kApart) {
    const Bytes pixels = hn::LoadU(kBytes, line + offsets[0]);
    return Bytes{_mm512_permutexvar_epi8(index.raw, pixels.raw)};
  }
  const auto load = [&](int i) { return hn::LoadU(Part(), line + offsets[i]).raw; };
  __m512i pixels = _mm512_castsi128_si512(load(0));
  pixels = _mm512_inserti32x4(pixels, load(1), 1);
  pixels = _mm512_inserti32x4(pixels, load(2), 2);
  pixels = _mm512_inserti32x4(pixels, load(3), 3);
  return hn::TableLookupBytes(Bytes{pixels}, index);
}
constexpr int kPixelBytes = 16;  // that kApart loads

// bytes_of() takes turns with its vectors: where the block's bytes are then.
struct Order {
  alignas(64) uint8_t byte[64] = {};
  constexpr explicit Order(Way way) {
    for (int i = 0; i < 3 * kGroup; ++i) {
      const int at = lane_of(way, i);
      byte[i] = static_cast<uint8_t>(at % 16 / 4 * 16 + at / 16 * 4 + at % 4);
    }
  }
};
template <Way kWay>
HWY_INLINE void store_block(const Result* outputs, uint8_t* to) {
  static constexpr Order kOrder(kWay);
  const Result all[4] = {outputs[0], outputs[1], outputs[2], outputs[vectors_of(kWay) - 1]};
  const Bytes order = hn::Load(kBytes, kOrder.byte);
  hn::StoreU(Bytes{_mm512_permutexvar_epi8(order.raw, bytes_of(all).raw)}, kBytes, to);
}

#else

// A weight is w = 2^16 high + low, both signed, and Pillow's integer sum is 2^16 (p.high) + p.low +
// half. Planes are high, and low of the even and of the odd lanes. Pairs of taps are multiplied and
// added up at once: bytes by bytes (pmaddubsw), as high is at most 83 (Lanczos beside a border) and
// a pair of them at most 128; and 16 by 16 bits (pmaddwd). Of the sum, bits 16 to 31 do, in which
// p.high is taken modulo 2^16: with half they are divided by 2^6.
constexpr int kTaps = 2;   // of a lane
constexpr int kLoad = 16;  // bytes of the source for the lanes of a group
constexpr int kGroup = 8;  // output pixels that have a lane each while weights are packed
constexpr hn::Full128<int16_t> kLanes;
using Words = hn::Vec<hn::Full128<int16_t>>;
using Result = Short;
constexpr int16_t kEachTap = 0x101, kNextTaps = 0x300;
constexpr int kLinePlanes = 2;

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

struct Sums {
  Short high = hn::Zero(kShort);
  Wide even = hn::Zero(kWide), odd = hn::Zero(kWide);

  // Two taps to a lane of 16 bits.
  HWY_INLINE void add(Bytes taps, const Weights& weights) {
    alignas(16) static constexpr uint8_t kEven[16] = {0, 128, 1, 128, 4,  128, 5,  128,
                                                      8, 128, 9, 128, 12, 128, 13, 128};
    alignas(16) static constexpr uint8_t kOdd[16] = {2,  128, 3,  128, 6,  128, 7,  128,
                                                     10, 128, 11, 128, 14, 128, 15, 128};
    const auto product = [&](const uint8_t* lanes, Wide by) {
      const Bytes two = hn::TableLookupBytesOr0(taps, hn::LoadDup128(kBytes, lanes));
      Wide none = hn::Zero(kWide);
      return hn::ReorderWidenMulAccumulate(kWide, hn::BitCast(kShort, two), hn::BitCast(kShort, by),
                                           hn::Zero(kWide), none);
    };
    high = hn::Add(high, multiply_bytes(taps, hn::BitCast(kBytes, weights.planes[0])));
    even = hn::Add(even, product(kEven, weights.planes[1]));
    odd = hn::Add(odd, product(kOdd, weights.planes[2]));
  }

  // What 8 bits do not hold is below 0 or above 255.
  [[nodiscard]] HWY_INLINE Result result() const {
    const Short low =
        hn::OddEven(hn::BitCast(kShort, odd), hn::BitCast(kShort, hn::ShiftRight<16>(even)));
    return hn::MulFixedPoint15(hn::Add(high, low),
                               hn::Set(kShort, 1 << (15 - (kPrecisionBits - 16))));
  }
  static HWY_INLINE Result only(Bytes taps, const Weights& weights) {
    Sums sums;
    sums.add(taps, weights);
    return sums.result();
  }
};

HWY_INLINE Bytes bytes_of(const Result* sums) { return saturate(sums[0], sums[1]); }

HWY_INLINE void interleave(const uint8_t* const* in, size_t x, Bytes* taps) {
  const Bytes a = hn::LoadU(kBytes, in[0] + x), b = hn::LoadU(kBytes, in[1] + x);
  taps[0] = hn::InterleaveLower(kBytes, a, b);
  taps[1] = hn::InterleaveUpper(kBytes, a, b);
}

// The words of a group's pixels for the lanes of each vector of a block, and their channels.
struct Table {
  alignas(16) uint8_t pixel[4][16] = {};
  alignas(16) uint8_t sorted[4][16] = {};  // the even lanes first
  alignas(16) int16_t channel[4][kGroup] = {};
  constexpr void set(int v, int lane, int from, int third) {
    channel[v][lane] = static_cast<int16_t>(third);
    for (int byte = 0; byte < 2; ++byte) {
      pixel[v][2 * lane + byte] = static_cast<uint8_t>(2 * from + byte);
      sorted[v][2 * (lane / 2 + lane % 2 * 4) + byte] = static_cast<uint8_t>(2 * from + byte);
    }
  }
  static Words look_up(Words of, const uint8_t* lanes) {
    return hn::TableLookupBytes(of, hn::BitCast(kLanes, hn::Load(Part(), lanes)));
  }
  [[nodiscard]] Words spread(Words of, int v) const { return look_up(of, pixel[v]); }
};

// Taps t and t + 1 of a group: the lower 16 bits of each, and the upper ones as two bytes.
struct Split {
  Words low[kTaps], high;
  Split(const Axis& axis, int t, int j) {
    constexpr hn::Full128<int32_t> d;
    Words upper[kTaps];
    for (int i = 0; i < kTaps; ++i) {
      const int32_t* const from =
          axis.weights.data() + static_cast<size_t>(t + i) * axis.stride + j;
      const auto front = hn::LoadU(d, from);
      const auto back = hn::LoadU(d, from + 4);
      const auto lower = [](auto w) { return hn::ShiftRight<16>(hn::ShiftLeft<16>(w)); };
      const auto rest = [&](auto w) { return hn::ShiftRight<16>(hn::Add(w, hn::Set(d, 1 << 15))); };
      low[i] = hn::ReorderDemote2To(kLanes, lower(front), lower(back));
      upper[i] = hn::ReorderDemote2To(kLanes, rest(front), rest(back));
    }
    high = hn::Or(hn::And(upper[0], hn::Set(kLanes, 0xFF)), hn::ShiftLeft<8>(upper[1]));
  }
  static void store(Words words, int32_t* to) {
    hn::StoreU(words, kLanes, reinterpret_cast<int16_t*>(to));
  }
  void store(const Table& table, int v, int32_t* to) const {
    const Words one = Table::look_up(low[0], table.sorted[v]);
    const Words other = Table::look_up(low[1], table.sorted[v]);
    store(table.spread(high, v), to);
    store(hn::InterleaveLower(kLanes, one, other), to + kVector);
    store(hn::InterleaveUpper(kLanes, one, other), to + 2 * kVector);
  }
  void store_lines(int32_t* to, int stride) const {
    store(hn::InterleaveLower(kLanes, high, high), to);
    store(hn::InterleaveUpper(kLanes, high, high), to + 4);
    store(hn::InterleaveLower(kLanes, low[0], low[1]), to + stride);
    store(hn::InterleaveUpper(kLanes, low[0], low[1]), to + stride + 4);
  }
};

HWY_INLINE Words lanes_of(const int32_t* first, int begin) {
  constexpr hn::Full128<int32_t> d;
  const auto four = [&](int i) { return hn::Sub(hn::LoadU(d, first + i), hn::Set(d, begin)); };
  return hn::ReorderDemote2To(kLanes, four(0), four(4));
}
// Of all lanes, which are not negative.
struct Extremes {
  int least, most;
  explicit Extremes(Words lanes)
      : least(least_of(lanes)), most(0xFFFF - least_of(hn::Not(lanes))) {}
  static int least_of(Words lanes) {
    return _mm_cvtsi128_si32(_mm_minpos_epu16(lanes.raw)) & 0xFFFF;
  }
};

template <Way kWay>
HWY_INLINE Bytes load_taps(const uint8_t* line, const int32_t* offsets, Bytes index) {
  Bytes pixels;
  if constexpr (kWay == kApart) {
    constexpr hn::Repartition<uint64_t, decltype(kBytes)> d;
    const auto two = [&](int i) {
      uint64_t eight[2];
      std::memcpy(eight, line + offsets[i], 8);
      std::memcpy(eight + 1, line + offsets[i + 1], 8);
      return hn::OddEven(hn::Set(d, eight[1]), hn::Set(d, eight[0]));
    };
    pixels = hn::BitCast(kBytes, two(0));
#if HWY_TARGET == HWY_AVX2
    pixels = hn::ConcatUpperLower(kBytes, hn::BitCast(kBytes, two(2)), pixels);
#endif
  } else {
#if HWY_TARGET == HWY_AVX2
    pixels = hn::Combine(kBytes, hn::LoadU(Part(), line + offsets[1]),
                         hn::LoadU(Part(), line + offsets[0]));
#else
    pixels = hn::LoadU(Part(), line + offsets[0]);
#endif
  }
  return hn::TableLookupBytes(pixels, index);
}
constexpr int kPixelBytes = 8;  // that kApart loads

// Where a vector is 32 bytes: its halves.
HWY_INLINE void store_part(Bytes bytes, [[maybe_unused]] int part, uint8_t* to) {
#if HWY_TARGET == HWY_AVX2
  hn::StoreU(part == 0 ? hn::LowerHalf(Part(), bytes) : hn::UpperHalf(Part(), bytes), Part(), to);
#else
  hn::StoreU(bytes, Part(), to);
#endif
}

// Where the bytes of an output line are in those of two vectors.
struct Order {
  alignas(16) uint8_t front[16] = {};  // of vectors 0 and 1
  alignas(16) uint8_t back[16] = {};   // of the last two
  constexpr explicit Order(Way way) {
    for (int i = 0; i < 16; ++i) {
      front[i] = static_cast<uint8_t>(lane_of(way, i) % 16);
      back[i] = static_cast<uint8_t>((front[i] + (way == kMirrored ? 7 : 0)) % 16);
    }
  }
};

// A group's 24 bytes: kFront of them from vectors 0 and 1, the others from the last two. What is
// stored behind them is overwritten.
template <Way kWay>
HWY_INLINE void store_block(const Result* outputs, uint8_t* to) {
  constexpr int kFront = kWay == kDense ? 16 : kWay == kMirrored ? 15 : 12;
  constexpr int kLast = vectors_of(kWay) - 1;
  Bytes front = saturate(outputs[0], outputs[1]);
  Bytes back = saturate(outputs[kWay == kDense ? kLast : kLast - 1], outputs[kLast]);
  if constexpr (kWay != kDense) {
    static constexpr Order kOrder(kWay);
    front = hn::TableLookupBytes(front, hn::LoadDup128(kBytes, kOrder.front));
    back = hn::TableLookupBytes(back, hn::LoadDup128(kBytes, kOrder.back));
  }
  for (int part = 0; part < kVector / 4; ++part, to += 3 * kGroup) {
    store_part(front, part, to);
    store_part(back, part, to + kFront);
  }
}

#endif

// ---- What is common ----

constexpr int kParts = 4 * kVector / kLoad;  // loads of a vector
constexpr int kBlock = kGroup * kParts;      // output pixels whose results are stored together
static_assert(Axis::kLanes % kBlock == 0);

template <Way kWay>
constexpr Table table_of() {
  constexpr int kLanesOfGroup = kLoad / kTaps;
  Table table;
  for (int v = 0; v < vectors_of(kWay); ++v) {
    for (int lane = 0; lane < kLanesOfGroup; ++lane) {
      const int at = kLanesOfGroup * v + lane;
      const int third = is_dense(kWay) ? at % 3 : at % 4 % 3;
      const int apart = kWay == kApart ? lane / 4 * kPixelBytes : 0;
      table.set(v, lane, is_dense(kWay) ? at / 3 : at / 4,
                apart + (kWay == kMirrored ? 2 - third : third));
    }
  }
  return table;
}
template <Way kWay>
constexpr Table kTable = table_of<kWay>();

// Axis::packed for the horizontal pass has for each vector: the byte offsets of its loads, the
// bytes that the lanes take of those, and for each chunk of kTaps taps three planes of weights.
struct Layout {
  int chunks, vector_size;
  explicit Layout(const Axis& axis)
      : chunks(axis.taps / kTaps), vector_size(kVector * (2 + 3 * chunks)) {}
};

// Offsets and bytes of a group's part of the vectors; whether a load holds the source pixels.
template <Way kWay>
bool pack_group(const int32_t* first, int part, int vector_size, int32_t* to) {
  constexpr int kPixels = kLoad / kPixelBytes;
  using Number = hn::TFromD<decltype(kLanes)>;
  const int begin = std::min(first[0], first[kGroup - 1]);
  if (kWay != kApart && std::max(first[0], first[kGroup - 1]) - begin > 4 * kLoad) return false;
  const auto pixels = hn::Mul(lanes_of(first, begin), hn::Set(kLanes, 3));
  for (int v = 0; v < vectors_of(kWay); ++v, to += vector_size) {
    auto bytes = hn::Load(kLanes, kTable<kWay>.channel[v]);
    if constexpr (kWay == kApart) {
      for (int i = 0; i < kPixels; ++i) to[kPixels * part + i] = 3 * first[kPixels * v + i];
    } else {
      bytes = hn::Add(bytes, kTable<kWay>.spread(pixels, v));
      const Extremes extremes(bytes);
      if (extremes.most - extremes.least + 3 * (kTaps - 1) >= kLoad) return false;
      to[part] = 3 * begin + extremes.least;
      bytes = hn::Sub(bytes, hn::Set(kLanes, static_cast<Number>(extremes.least)));
    }
    const auto index =
        hn::Add(hn::Mul(bytes, hn::Set(kLanes, kEachTap)), hn::Set(kLanes, kNextTaps));
    hn::StoreU(index, kLanes, reinterpret_cast<Number*>(to + kVector + kLoad / 4 * part));
  }
  return true;
}

template <Way kWay>
bool pack_lines(Axis& axis) {
  const Layout layout(axis);
  const auto group = [&](int j) {
    return axis.packed.data() +
           static_cast<size_t>(j / kBlock * vectors_of(kWay)) * layout.vector_size;
  };
  const auto part_of = [](int j) { return j % kBlock / kGroup; };
  for (int j = 0; j < axis.stride; j += kGroup) {
    const int32_t* const first = axis.first.data() + j;
    if (!pack_group<kWay>(first, part_of(j), layout.vector_size, group(j))) return false;
  }
  for (int j = 0; j < axis.stride; j += kGroup) {
    for (int chunk = 0; chunk < layout.chunks; ++chunk) {
      const Split weights(axis, kTaps * chunk, j);
      int32_t* to = group(j) + kVector * (2 + 3 * chunk) + kLoad / 4 * part_of(j);
      for (int v = 0; v < vectors_of(kWay); ++v, to += layout.vector_size) {
        weights.store(kTable<kWay>, v, to);
      }
    }
  }
  axis.way = kWay;
  return true;
}

void pack_horizontal(Axis& axis) {
  const size_t vectors = static_cast<size_t>(axis.stride / kBlock) * vectors_of(kApart);
  axis.packed.reserve(vectors * Layout(axis).vector_size);
  (void)(pack_lines<kDense>(axis) || pack_lines<kMirrored>(axis) || pack_lines<kSpaced>(axis) ||
         pack_lines<kApart>(axis));
}

// One vector of outputs of kLines lines, which share the loads of weights. kChunks: chunks of taps;
// 0: `chunks`.
template <Way kWay, int kChunks, size_t kLines>
HWY_INLINE std::array<Result, kLines> outputs(std::array<const uint8_t*, kLines> lines,
                                              const int32_t* vector, int chunks) {
  const Bytes index = hn::Load(kBytes, reinterpret_cast<const uint8_t*>(vector + kVector));
  const int32_t* from = vector + 2 * kVector;
  std::array<Result, kLines> results;
  Sums sums[kLines];
  for (int chunk = 0; chunk < (kChunks > 0 ? kChunks : chunks); ++chunk, from += 3 * kVector) {
    const Weights weights{{hn::Load(kWide, from), hn::Load(kWide, from + kVector),
                           hn::Load(kWide, from + 2 * kVector)}};
    for (size_t i = 0; i < kLines; ++i, lines[i - 1] += 3 * kTaps) {
      const Bytes taps = load_taps<kWay>(lines[i], vector, index);
      kChunks == 1 ? void(results[i] = Sums::only(taps, weights)) : sums[i].add(taps, weights);
    }
  }
  for (size_t i = 0; kChunks != 1 && i < kLines; ++i) results[i] = sums[i].result();
  return results;
}

// Lines of many taps that share the loads of weights.
constexpr int kShared = HWY_TARGET == HWY_AVX3 ? ResampleKernels::kBatch : 2;

template <Way kWay, int kChunks>
void lines(const Axis& axis, const uint8_t* const* in, uint8_t* const* out, int rows) {
  const Layout layout(axis);
  const int32_t* vector = axis.packed.data();
  for (int j = 0; j < axis.stride; j += kBlock) {
    Result results[ResampleKernels::kBatch][vectors_of(kWay)];
    for (int v = 0; v < vectors_of(kWay); ++v, vector += layout.vector_size) {
      if constexpr (kChunks > 0) {
        for (int r = 0; r < rows; ++r) {
          results[r][v] = outputs<kWay, kChunks, 1>({in[r]}, vector, layout.chunks)[0];
        }
      } else {
        for (int r = 0; r < rows; r += kShared) {
          std::array<const uint8_t*, kShared> some;
          for (int i = 0; i < kShared; ++i) some[i] = in[std::min(r + i, rows - 1)];
          const auto of = outputs<kWay, 0, kShared>(some, vector, layout.chunks);
          for (int i = 0; i < kShared; ++i) results[r + i][v] = of[i];
        }
      }
    }
    for (int r = 0; r < rows; ++r) {
      store_block<kWay>(results[r], out[r] + 3 * static_cast<size_t>(j));
    }
  }
}

template <Way kWay>
void near_lines(const Axis& axis, const uint8_t* const* in, uint8_t* const* out, int rows) {
  if (axis.taps == kTaps) return lines<kWay, 1>(axis, in, out, rows);
  if (axis.taps == 2 * kTaps) return lines<kWay, 2>(axis, in, out, rows);
  if (axis.taps == 3 * kTaps) return lines<kWay, 3>(axis, in, out, rows);
  lines<kWay, 0>(axis, in, out, rows);
}

void horizontal(const Axis& axis, const uint8_t* const* in, uint8_t* const* out, int rows) {
  if (axis.way == kDense) return near_lines<kDense>(axis, in, out, rows);
  if (axis.way == kMirrored) return near_lines<kMirrored>(axis, in, out, rows);
  if (axis.way == kSpaced) return near_lines<kSpaced>(axis, in, out, rows);
  lines<kApart, 0>(axis, in, out, rows);
}

// packed[(kLinePlanes * chunk + plane) * stride + j]: the weights of output line j.
void pack_vertical(Axis& axis) {
  axis.packed.reserve(static_cast<size_t>(axis.taps / kTaps) * kLinePlanes * axis.stride);
  for (int t = 0; t < axis.taps; t += kTaps) {
    int32_t* const to =
        axis.packed.data() + static_cast<size_t>(t / kTaps * kLinePlanes) * axis.stride;
    for (int j = 0; j < axis.stride; j += kGroup) {
      Split(axis, t, j).store_lines(to + j, axis.stride);
    }
  }
}

// kChunks: chunks of taps; 0: `many`. Few pointers and weights stay in registers.
template <int kChunks>
void vertical_line(const int32_t* packed, size_t stride, const uint8_t* const* in, size_t bytes,
                   uint8_t* out, int many = 0) {
  constexpr int kFew = std::max(kChunks, 1);
  const auto weights_of = [&](int chunk) {
    const int32_t* const from = packed + static_cast<size_t>(kLinePlanes * chunk) * stride;
    return Weights{{hn::Set(kWide, from[0]), hn::Set(kWide, from[stride]),
                    hn::Set(kWide, from[(kLinePlanes - 1) * stride])}};
  };
  const uint8_t* lines[kTaps * kFew];
  Weights weights[kFew];
  std::copy(in, in + kTaps * kChunks, lines);
  for (int chunk = 0; chunk < kChunks; ++chunk) weights[chunk] = weights_of(chunk);
  for (size_t x = 0; x < bytes; x += 4 * kVector) {
    Sums sums[kTaps];
    Result results[kTaps];
    for (int chunk = 0; chunk < (kChunks > 0 ? kChunks : many); ++chunk) {
      Bytes taps[kTaps];
      interleave((kChunks > 0 ? lines : in) + kTaps * chunk, x, taps);
      const Weights by = kChunks > 0 ? weights[chunk] : weights_of(chunk);
      for (int i = 0; i < kTaps; ++i) {
        if constexpr (kChunks == 1) results[i] = Sums::only(taps[i], by);
        sums[i].add(taps[i], by);
      }
    }
    for (int i = 0; kChunks != 1 && i < kTaps; ++i) results[i] = sums[i].result();
    hn::StoreU(bytes_of(results), kBytes, out + x);
  }
}

// Many lines have one source line less than others, so that their last chunk has no weight.
void vertical(const Axis& axis, int j, const uint8_t* const* in, size_t bytes, uint8_t* out) {
  const auto stride = static_cast<size_t>(axis.stride);
  const int32_t* const packed = axis.packed.data() + j;
  int chunks = axis.taps / kTaps;
  int32_t last = 0;
  for (int p = 0; p < kLinePlanes; ++p) {
    last |= packed[(static_cast<size_t>(kLinePlanes * (chunks - 1)) + p) * stride];
  }
  if (chunks > 1 && last == 0) --chunks;
  if (chunks == 1) return vertical_line<1>(packed, stride, in, bytes, out);
  if (chunks == 2) return vertical_line<2>(packed, stride, in, bytes, out);
  if (chunks == 3) return vertical_line<3>(packed, stride, in, bytes, out);
  vertical_line<0>(packed, stride, in, bytes, out, chunks);
}

}  // namespace

const ResampleKernels kResample{kTaps, kTaps, pack_horizontal, pack_vertical, horizontal, vertical};

#else

// Pillow's integer sums as they are, in 32-bit lanes.
namespace {

constexpr hn::Full128<uint8_t> kBytes;
constexpr hn::Full128<int32_t> kWide;
constexpr hn::Rebind<uint8_t, hn::Full128<int32_t>> kFour;
using Wide = hn::Vec<hn::Full128<int32_t>>;

constexpr int kChunk = 4;  // taps of one 16-byte load of RGB pixels

HWY_INLINE void store(Wide sums, uint8_t* to) {
  hn::StoreU(hn::DemoteTo(kFour, hn::ShiftRight<kPrecisionBits>(sums)), kFour, to);
}

// The sums with R, G and B of a tap of a load times its weight.
template <int kTap>
HWY_INLINE Wide add_tap(Wide sums, hn::Vec<hn::Full128<uint8_t>> pixels, const int32_t* weights) {
  constexpr uint8_t r = 3 * kTap, none = 0x80;
  alignas(16) static constexpr uint8_t kIndex[16] = {r,    none, none,  none, r + 1, none,
                                                     none, none, r + 2, none, none,  none,
                                                     none, none, none,  none};
  const auto pixel = hn::TableLookupBytesOr0(pixels, hn::Load(kBytes, kIndex));
  return hn::Add(sums, hn::Mul(hn::BitCast(kWide, pixel), hn::Set(kWide, weights[kTap])));
}

void horizontal(const Axis& axis, const uint8_t* const* in, uint8_t* const* out, int rows) {
  for (int r = 0; r < rows; ++r) {
    const int32_t* weights = axis.packed.data();
    for (int j = 0; j < axis.count; ++j) {
      Wide sums = hn::Set(kWide, kRounding);
      const uint8_t* from = in[r] + 3 * static_cast<size_t>(axis.first[j]);
      for (int t = 0; t < axis.taps; t += kChunk, from += 3 * kChunk, weights += kChunk) {
        const auto pixels = hn::LoadU(kBytes, from);
        sums = add_tap<1>(add_tap<0>(sums, pixels, weights), pixels, weights);
        sums = add_tap<3>(add_tap<2>(sums, pixels, weights), pixels, weights);
      }
      store(sums, out[r] + 3 * static_cast<size_t>(j));
    }
  }
}

void pack_nothing(Axis&) {}

void vertical(const Axis& axis, int j, const uint8_t* const* in, size_t bytes, uint8_t* out) {
  constexpr hn::Full128<uint16_t> words;
  constexpr hn::Half<decltype(words)> four;
  for (size_t x = 0; x < bytes; x += 16) {
    Wide sums[4];
    for (Wide& sum : sums) sum = hn::Set(kWide, kRounding);
    const int32_t* weight = axis.weights.data() + j;
    for (int t = 0; t < axis.taps; ++t, weight += axis.stride) {
      const auto samples = hn::LoadU(kBytes, in[t] + x);
      const auto add = [&](Wide& sum, auto of) {
        sum = hn::Add(sum, hn::Mul(hn::PromoteTo(kWide, of), hn::Set(kWide, *weight)));
      };
      const auto front = hn::PromoteTo(words, hn::LowerHalf(samples));
      const auto back = hn::PromoteTo(words, hn::UpperHalf(hn::Half<decltype(kBytes)>(), samples));
      add(sums[0], hn::LowerHalf(four, front));
      add(sums[1], hn::UpperHalf(four, front));
      add(sums[2], hn::LowerHalf(four, back));
      add(sums[3], hn::UpperHalf(four, back));
    }
    for (int i = 0; i < 4; ++i) store(sums[i], out + x + static_cast<ptrdiff_t>(4) * i);
  }
}

}  // namespace

const ResampleKernels kResample{kChunk, 1, pack_any, pack_nothing, horizontal, vertical};

#endif

}  // namespace fastload::FASTLOAD_LEVEL
