// The two passes of the inverse DCT on as many blocks side by side as a vector has 128-bit parts.
// For *_vector.cpp files, behind base/highway.h.
//
// Rows, and in the second pass columns, come as the four pairs whose values meet in sums of two
// products, x0 to x7 being the values of a column or row: (x0, x4), (x2, x6), (x1, x7), (x5, x3).
// The values of a pair alternate, as pmaddwd takes them: nothing is interleaved, and 32 bits at a
// time are transposed. (NEON multiplies vectors that lie apart.)
#pragma once

#include <array>
#include <utility>

#include "decode/jpeg/idct.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

constexpr hn::ScalableTag<int16_t> kWords;
constexpr hn::ScalableTag<int32_t> kWide;
constexpr hn::ScalableTag<uint8_t> kBytes;
constexpr hn::ScalableTag<int8_t> kSignedBytes;
constexpr hn::ScalableTag<uint32_t> kUnsigned;
constexpr hn::ScalableTag<uint64_t> kLong;
using Words = hn::Vec<hn::ScalableTag<int16_t>>;
using Wide = hn::Vec<hn::ScalableTag<int32_t>>;

constexpr size_t kIdctBlocks = hn::MaxLanes(kWords) / 8;

constexpr std::array<std::array<size_t, 2>, 4> kIdctPairs{{{0, 4}, {2, 6}, {1, 7}, {5, 3}}};

// Sums and differences that wrap.
template <class V>
V plus(V a, V b) {
  const hn::RebindToUnsigned<hn::DFromV<V>> d;
  return hn::BitCast(hn::DFromV<V>(), hn::Add(hn::BitCast(d, a), hn::BitCast(d, b)));
}
template <class V>
V minus(V a, V b) {
  const hn::RebindToUnsigned<hn::DFromV<V>> d;
  return hn::BitCast(hn::DFromV<V>(), hn::Sub(hn::BitCast(d, a), hn::BitCast(d, b)));
}

// The factors of pair_products().
inline Words factors(int a, int b) {
  return hn::BitCast(kWords, hn::Set(kUnsigned, static_cast<uint32_t>(b) << 16 |
                                                    (static_cast<uint32_t>(a) & 0xFFFF)));
}

#if HWY_TARGET == HWY_NEON

// Two rows or columns, in their order.
struct Pair {
  Words first, second;
};
constexpr std::array<size_t, 8> kIdctOrder{0, 1, 2, 3, 4, 5, 6, 7};

template <int kHalf>
int16x4_t half(Words v) {
  return kHalf == 0 ? vget_low_s16(v.raw) : vget_high_s16(v.raw);
}
// sum + a x + b y of the pairs (x, y) of a half.
template <int kHalf>
Wide add_products(Wide sum, Pair pair, int16_t a, int16_t b) {
  const int32x4_t first = vmlal_n_s16(sum.raw, half<kHalf>(pair.first), a);
  return Wide{vmlal_n_s16(first, half<kHalf>(pair.second), b)};
}
template <int kHalf>
Wide products(Pair pair, int16_t a, int16_t b) {
  const int32x4_t first = vmull_n_s16(half<kHalf>(pair.first), a);
  return Wide{vmlal_n_s16(first, half<kHalf>(pair.second), b)};
}
// sum + 2^13 (x + b y), b 1 or -1, the sum in the brackets in 16 bits; kIsSmall: it fits.
template <int kHalf, bool kIsSmall>
Wide add_scaled(Wide sum, Pair pair, int b) {
  const Words both = b > 0 ? plus(pair.first, pair.second) : minus(pair.first, pair.second);
  return plus(sum, Wide{vshll_n_s16(half<kHalf>(both), 13)});
}
Words first_of(Pair pair) { return pair.first; }

#else

// The pairs of four columns (in the first pass; rows in the second) of each block, and of four
// others.
struct Pair {
  Words first, second;
};
constexpr std::array<size_t, 8> kIdctOrder{0, 4, 2, 6, 1, 7, 5, 3};

template <int kHalf>
Words half(Pair pair) {
  return kHalf == 0 ? pair.first : pair.second;
}
template <int kHalf>
Wide add_products(Wide sum, Pair pair, int a, int b) {
  return add_pair_products(kWide, sum, half<kHalf>(pair), factors(a, b));
}
template <int kHalf>
Wide products(Pair pair, int a, int b) {
  return pair_products(kWide, half<kHalf>(pair), factors(a, b));
}
template <int kHalf, bool kIsSmall>
Wide add_scaled(Wide sum, Pair pair, int b) {
  if (kIsSmall) return add_products<kHalf>(sum, pair, 1 << 13, b << 13);
  const Words both = hn::BitCast(kWords, products<kHalf>(pair, 1, b));
  return add_pair_products(kWide, sum, both, factors(1 << 13, 0));
}
// The first of two rows.
inline Words first_of(Pair pair) {
  const auto firsts = [](Words v) {
    return hn::ShiftRight<16>(hn::ShiftLeft<16>(hn::BitCast(kWide, v)));
  };
  return hn::ReorderDemote2To(kWords, firsts(pair.first), firsts(pair.second));
}

#endif

inline Pair sum_of(Pair a, Pair b) { return {plus(a.first, b.first), plus(a.second, b.second)}; }

// The eight sums of one half, not yet shifted; `z` is the sum of the last two pairs. The constants
// are jidctint.c's, combined as its SIMD versions do. A half at a time, since 16 registers hold no
// more.
template <int kHalf, bool kIsSmall>
void sums_of(const Pair* x, Pair z, Wide rounding, Wide* sums) {
  const auto both = [sums](size_t i, Wide even, Wide odd) {
    sums[i] = plus(even, odd);
    sums[7 - i] = minus(even, odd);
  };
  const Wide odd_a = products<kHalf>(z, 9633, -6436), odd_b = products<kHalf>(z, 6437, 9633);
  // Of even + a x + b y and even - a x - b y. On AVX-512 products are added at once.
  const auto evens = [&](Wide even, int16_t a, int16_t b) {
    if constexpr (HWY_TARGET == HWY_AVX3) {
      return std::pair{add_products<kHalf>(even, x[1], a, b),
                       add_products<kHalf>(even, x[1], -a, -b)};
    } else {
      const Wide product = products<kHalf>(x[1], a, b);
      return std::pair{plus(even, product), minus(even, product)};
    }
  };
  const auto [even0, even3] = evens(add_scaled<kHalf, kIsSmall>(rounding, x[0], 1), 10703, 4433);
  both(0, even0, add_products<kHalf>(odd_b, x[2], 4926, -7373));
  both(3, even3, add_products<kHalf>(odd_a, x[2], -7373, -4927));
  const auto [even1, even2] = evens(add_scaled<kHalf, kIsSmall>(rounding, x[0], -1), 4433, -10704);
  both(1, even1, add_products<kHalf>(odd_a, x[3], -20995, 4177));
  both(2, even2, add_products<kHalf>(odd_b, x[3], -4176, -20995));
}

// Both halves >> kShift, saturated to 16 bits, in their order.
template <int kShift>
Words narrowed(Wide low, Wide high) {
#if HWY_TARGET == HWY_NEON
  if constexpr (kShift <= 16) {
    return Words{vqshrn_high_n_s32(vqshrn_n_s32(low.raw, kShift), high.raw, kShift)};
  } else {  // no 16-bit value is exceeded
    const int16x8_t upper = vshrn_high_n_s32(vshrn_n_s32(low.raw, 16), high.raw, 16);
    return Words{vshrq_n_s16(upper, kShift - 16)};
  }
#else
  return hn::ReorderDemote2To(kWords, hn::ShiftRight<kShift>(low), hn::ShiftRight<kShift>(high));
#endif
}

// From pairs of rows to rows (then from pairs of columns to columns): y[i] = sum i >> kShift. The
// sums of each half begin with the rounding, and what else is to be added. kIsSmall: values are in
// [-2^14, 2^14).
template <int kShift, bool kIsSmall = false>
void idct_pass(const Pair* x, Words* y, Wide first_start, Wide second_start) {
  const Pair z = sum_of(x[2], x[3]);
  Wide low[8], high[8];
  sums_of<0, kIsSmall>(x, z, first_start, low);
  sums_of<1, kIsSmall>(x, z, second_start, high);
  for (size_t i = 0; i < 8; ++i) y[i] = narrowed<kShift>(low[i], high[i]);
}
template <int kShift>
void idct_pass(const Pair* x, Words* y) {
  const Wide rounding = hn::Set(kWide, 1 << (kShift - 1));
  idct_pass<kShift>(x, y, rounding, rounding);
}

// Of flat blocks, those whose rows below the first are zero, libjpeg-turbo takes four times the
// first row for all. It differs from the transform where 16 bits overflow: only where a value is
// not in [-2^13, 2^13).
inline bool may_overflow(Pair x0) {
  const auto offset = [](Words v) { return plus(v, hn::Set(kWords, 1 << 13)); };
  const Words all = hn::Or(offset(x0.first), offset(x0.second));
  const auto beyond = hn::And(all, hn::Set(kWords, static_cast<int16_t>(-(1 << 14))));
  return !hn::AllTrue(kWords, hn::Eq(beyond, hn::Zero(kWords)));
}
using Blocks = hn::Mask<hn::ScalableTag<uint64_t>>;
inline Words flat_row(Pair x0) { return hn::ShiftLeft<2>(first_of(x0)); }
inline void put_flat_rows(Blocks flat, Pair x0, Words* y) {
  const auto row = hn::BitCast(kLong, flat_row(x0));
  for (size_t i = 0; i < 8; ++i) {
    y[i] = hn::BitCast(kWords, hn::IfThenElse(flat, row, hn::BitCast(kLong, y[i])));
  }
}

// The lower and the upper lanes of T of each 128-bit part of a and b, alternating.
template <class T>
Words lower(Words a, Words b) {
  const hn::ScalableTag<T> d;
  return hn::BitCast(kWords, hn::InterleaveLower(d, hn::BitCast(d, a), hn::BitCast(d, b)));
}
template <class T>
Words upper(Words a, Words b) {
  const hn::ScalableTag<T> d;
  return hn::BitCast(kWords, hn::InterleaveUpper(d, hn::BitCast(d, a), hn::BitCast(d, b)));
}

// Four rows of 32-bit lanes to columns.
inline void transpose(const Words* rows, Words* columns) {
  const Words a0 = lower<uint32_t>(rows[0], rows[1]), a1 = upper<uint32_t>(rows[0], rows[1]);
  const Words a2 = lower<uint32_t>(rows[2], rows[3]), a3 = upper<uint32_t>(rows[2], rows[3]);
  columns[0] = lower<uint64_t>(a0, a2), columns[1] = upper<uint64_t>(a0, a2);
  columns[2] = lower<uint64_t>(a1, a3), columns[3] = upper<uint64_t>(a1, a3);
}

// Rows of the first pass to pairs of columns for the second.
inline void pairs_of_columns(const Words* rows, Pair* x) {
  Words low[4], high[4];
#if HWY_TARGET == HWY_NEON
  Words columns[8];
  const Words a[4] = {lower<uint16_t>(rows[0], rows[1]), lower<uint16_t>(rows[2], rows[3]),
                      lower<uint16_t>(rows[4], rows[5]), lower<uint16_t>(rows[6], rows[7])};
  const Words b[4] = {upper<uint16_t>(rows[0], rows[1]), upper<uint16_t>(rows[2], rows[3]),
                      upper<uint16_t>(rows[4], rows[5]), upper<uint16_t>(rows[6], rows[7])};
  transpose(a, columns);
  transpose(b, columns + 4);
  for (size_t i = 0; i < 4; ++i) x[i] = {columns[kIdctPairs[i][0]], columns[kIdctPairs[i][1]]};
  static_cast<void>(low), static_cast<void>(high);
#else
  transpose(rows, low);
  transpose(rows + 4, high);
  for (size_t i = 0; i < 4; ++i) x[i] = {low[i], high[i]};
#endif
}

// Of each 128-bit part eight samples of each of two rows.
inline void store_two_rows(Words v, uint8_t* first, uint8_t* second) {
  const hn::Half<hn::ScalableTag<uint8_t>> part;
  auto rows = hn::BitCast(kBytes, v);
  if constexpr (kIdctBlocks > 1) {
    alignas(64) static constexpr auto kOrder = [] {
      std::array<int32_t, 4 * kIdctBlocks> order{};
      for (size_t i = 0; i < order.size(); ++i) {
        const size_t half = i / (2 * kIdctBlocks), at = i % (2 * kIdctBlocks);
        order[i] = static_cast<int32_t>(at / 2 * 4 + 2 * half + at % 2);
      }
      return order;
    }();
    const auto order = hn::SetTableIndices(kWide, kOrder.data());
    rows = hn::BitCast(kBytes, hn::TableLookupLanes(hn::BitCast(kWide, v), order));
  }
  hn::StoreU(hn::LowerHalf(part, rows), part, first);
  hn::StoreU(hn::UpperHalf(part, rows), part, second);
}

// Columns of the second pass to eight rows of samples.
inline void store_samples(const Words* columns, uint8_t* out, size_t stride) {
  const auto pack = [columns](size_t i) {
    const auto packed = pack_bytes(kSignedBytes, columns[i], columns[i + 4]);
    return hn::BitCast(kWords, hn::Xor(packed, hn::Set(kSignedBytes, int8_t{-128})));
  };
  const Words p0 = pack(0), p1 = pack(1), p2 = pack(2), p3 = pack(3);
  const Words a0 = lower<uint8_t>(p0, p1), a1 = upper<uint8_t>(p0, p1);
  const Words a2 = lower<uint8_t>(p2, p3), a3 = upper<uint8_t>(p2, p3);
  const Words left[2] = {lower<uint16_t>(a0, a2), upper<uint16_t>(a0, a2)};
  const Words right[2] = {lower<uint16_t>(a1, a3), upper<uint16_t>(a1, a3)};
  for (size_t i = 0; i < 2; ++i, out += 4 * stride) {
    store_two_rows(lower<uint32_t>(left[i], right[i]), out, out + stride);
    store_two_rows(upper<uint32_t>(left[i], right[i]), out + 2 * stride, out + 3 * stride);
  }
}

// The second pass, from the rows of the first.
inline void finish_idct(const Words* rows, uint8_t* out, size_t stride) {
  Pair x[4];
  Words columns[8];
  pairs_of_columns(rows, x);
  idct_pass<18>(x, columns);
  store_samples(columns, out, stride);
}

// Steps in natural order as pairs of rows, the same for all blocks.
inline void load_steps(const uint16_t* steps, Pair* pairs) {
  const hn::ScalableTag<uint16_t> d;
  for (size_t i = 0; i < 4; ++i) {
    const auto row = [&](size_t which) {
      return hn::BitCast(kWords, hn::LoadDup128(d, steps + 8 * kIdctPairs[i][which]));
    };
#if HWY_TARGET == HWY_NEON
    pairs[i] = {row(0), row(1)};
#else
    alignas(16) static constexpr std::array<uint8_t, 16> kBytesOfOrder = [] {
      std::array<uint8_t, 16> bytes{};
      for (size_t k = 0; k < 16; ++k) {
        bytes[k] = static_cast<uint8_t>(2 * kIdctOrder[k / 2] + k % 2);
      }
      return bytes;
    }();
    const Words order = hn::BitCast(kWords, hn::LoadDup128(kBytes, kBytesOfOrder.data()));
    const Words first = hn::TableLookupBytes(row(0), order);
    const Words second = hn::TableLookupBytes(row(1), order);
    pairs[i] = {lower<uint16_t>(first, second), upper<uint16_t>(first, second)};
#endif
  }
}

// The place of each coefficient (in natural order) of a group's first block: vector 2 i, then 2 i +
// 1 of pair i.
constexpr std::array<uint8_t, 64> kIdctPlaces = [] {
  std::array<uint8_t, 64> places{};
  for (size_t i = 0; i < 4; ++i) {
    for (size_t which = 0; which < 2; ++which) {
      for (size_t k = 0; k < 8; ++k) {
        const bool is_apart = HWY_TARGET == HWY_NEON;
        const size_t vector = 2 * i + (is_apart ? which : k / 4);
        const size_t lane = is_apart ? k : k % 4 * 2 + which;
        places[kIdctPairs[i][which] * 8 + kIdctOrder[k]] =
            static_cast<uint8_t>(vector * 8 * kIdctBlocks + lane);
      }
    }
  }
  return places;
}();

}  // namespace
}  // namespace fastload::FASTLOAD_LEVEL
