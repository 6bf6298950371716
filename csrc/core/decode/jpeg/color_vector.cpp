#include <array>

#include "decode/jpeg/color.h"
// Behind the others:
#include "base/highway.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

constexpr hn::ScalableTag<uint8_t> kBytes;
constexpr hn::ScalableTag<uint16_t> kWords;
constexpr hn::ScalableTag<int16_t> kSigned;
constexpr hn::ScalableTag<int32_t> kWide;
constexpr hn::Rebind<uint8_t, hn::ScalableTag<uint16_t>> kHalfBytes;
using Bytes = hn::Vec<hn::ScalableTag<uint8_t>>;
using Words = hn::Vec<hn::ScalableTag<uint16_t>>;
using Signed = hn::Vec<hn::ScalableTag<int16_t>>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(kBytes));

Words widen(const uint8_t* from) { return hn::PromoteTo(kWords, hn::LoadU(kHalfBytes, from)); }

Words triple(Words a) { return hn::Add(hn::Add(a, a), a); }

// (here + left + rounding) >> shift and (here + right + rounding) >> shift, one behind the other.
template <int kShift>
void store_pairs(Words here, Words left, int left_rounding, Words right, int right_rounding,
                 uint8_t* out) {
  const auto rounded = [here](Words side, int rounding) {
    const Words half = hn::Set(kWords, static_cast<uint16_t>(rounding));
    return hn::ShiftRight<kShift>(hn::Add(hn::Add(here, side), half));
  };
  const Words odd = hn::ShiftLeft<8>(rounded(right, right_rounding));
  hn::StoreU(hn::BitCast(kBytes, hn::Or(rounded(left, left_rounding), odd)), kBytes, out);
}

void h2v1(const uint8_t* in, uint8_t* out, int count) {
  for (int i = 0; i < count; i += kLanes / 2) {
    store_pairs<2>(triple(widen(in + i)), widen(in + i - 1), 1, widen(in + i + 1), 2, out + 2 * i);
  }
}

void h2v2(const uint8_t* near, const uint8_t* far, uint8_t* out, int count) {
  const auto column = [=](int i) { return hn::Add(triple(widen(near + i)), widen(far + i)); };
  for (int i = 0; i < count; i += kLanes / 2) {
    store_pairs<4>(triple(column(i)), column(i - 1), 8, column(i + 1), 7, out + 2 * i);
  }
}

void h1v2(const uint8_t* near, const uint8_t* far, int bias, uint8_t* out, int count) {
  const Words rounding = hn::Set(kWords, static_cast<uint16_t>(bias));
  for (int i = 0; i < count; i += kLanes) {
    const Words n = hn::BitCast(kWords, hn::LoadU(kBytes, near + i));
    const Words f = hn::BitCast(kWords, hn::LoadU(kBytes, far + i));
    const auto quarter = [&](Words a, Words b) {
      return hn::ShiftRight<2>(hn::Add(hn::Add(triple(a), b), rounding));
    };
    const Words low = hn::Set(kWords, 0xFF);
    const Words even = quarter(hn::And(n, low), hn::And(f, low));
    const Words odd = quarter(hn::ShiftRight<8>(n), hn::ShiftRight<8>(f));
    hn::StoreU(hn::BitCast(kBytes, hn::Or(even, hn::ShiftLeft<8>(odd))), kBytes, out + i);
  }
}

// Half of a vector of pixels (of each of its 128-bit blocks) in 16-bit arithmetic.
struct Rgb {
  Signed r, g, b;
};

// jdcolor.c's R = y + 1.402 v, G = y - 0.34414 u - 0.71414 v, B = y + 1.772 u. The factors beyond
// whole multiples, split so that 16 bits hold them: R = y + v + 0.402 v, G = y - v - 0.34414 u +
// 0.28586 v, B = y + 2 u - 0.228 u. For 8-bit samples the rounding multiply by 13173 / 2^15 gives
// what jdcolor.c's (26345 v + 32768) >> 16 gives; the others are its own factors.
Rgb convert(Signed y, Signed u, Signed v) {
  const Signed factors = hn::BitCast(kSigned, hn::Set(kWide, 18734 * 65536 + (-22554 & 0xFFFF)));
  const auto mixed = [&](Signed pairs) {
    return hn::ShiftRight<16>(add_pair_products(kWide, hn::Set(kWide, 32768), pairs, factors));
  };
  const Signed uv = hn::ReorderDemote2To(kSigned, mixed(hn::InterleaveLower(kSigned, u, v)),
                                         mixed(hn::InterleaveUpper(kSigned, u, v)));
  const Signed r = hn::Add(hn::Add(y, v), hn::MulFixedPoint15(v, hn::Set(kSigned, 13173)));
  const Signed b =
      hn::Add(hn::Add(y, hn::Add(u, u)), hn::MulFixedPoint15(u, hn::Set(kSigned, -7471)));
  return {r, hn::Add(hn::Sub(y, v), uv), b};
}

#if defined(__AVX512VBMI__)
// Of which pixel each of 192 output bytes is, and of which channel, as masks.
struct Order {
  alignas(64) std::array<uint8_t, 192> pixel;
  std::array<uint64_t, 3> is_green, is_blue;
};
constexpr Order kOrder = [] {
  Order order{};
  for (size_t i = 0; i < 192; ++i) {
    order.pixel[i] = static_cast<uint8_t>(i / 3);
    if (i % 3 == 1) order.is_green[i / 64] |= uint64_t{1} << (i % 64);
    if (i % 3 == 2) order.is_blue[i / 64] |= uint64_t{1} << (i % 64);
  }
  return order;
}();
#elif HWY_TARGET == HWY_AVX2
// Shuffles that spread 16 bytes of a channel over 48 bytes of pixels: [part][channel]. 0x80 leaves
// a zero. Highway's own StoreInterleaved3 computes some of its tables anew for each vector.
struct Order {
  alignas(16) std::array<std::array<std::array<uint8_t, 16>, 3>, 3> from;
};
constexpr Order kOrder = [] {
  Order order{};
  for (size_t i = 0; i < 144; ++i) {
    const size_t at = i / 3, channel = i % 3;
    order.from[at / 16][channel][at % 16] =
        static_cast<uint8_t>(at % 3 == channel ? at / 3 : 0x80);
  }
  return order;
}();
#endif

// kLanes pixels.
void store_rgb(Bytes r, Bytes g, Bytes b, uint8_t* rgb) {
#if defined(__AVX512VBMI__)
  for (size_t i = 0; i < 3; ++i) {
    const auto pixel = hn::Load(kBytes, kOrder.pixel.data() + 64 * i).raw;
    auto bytes = _mm512_permutexvar_epi8(pixel, r.raw);
    bytes = _mm512_mask_permutexvar_epi8(bytes, kOrder.is_green[i], pixel, g.raw);
    bytes = _mm512_mask_permutexvar_epi8(bytes, kOrder.is_blue[i], pixel, b.raw);
    hn::StoreU(Bytes{bytes}, kBytes, rgb + 64 * i);
  }
#elif HWY_TARGET == HWY_AVX2
  const auto part = [&](size_t i) {
    const auto spread = [i](Bytes of, size_t channel) {
      return hn::TableLookupBytesOr0(of, hn::LoadDup128(kBytes, kOrder.from[i][channel].data()));
    };
    return hn::Or(hn::Or(spread(r, 0), spread(g, 1)), spread(b, 2));
  };
  const Bytes one = part(0), two = part(1), three = part(2);
  hn::StoreU(hn::ConcatLowerLower(kBytes, two, one), kBytes, rgb);
  hn::StoreU(hn::ConcatUpperLower(kBytes, one, three), kBytes, rgb + 32);
  hn::StoreU(hn::ConcatUpperUpper(kBytes, three, two), kBytes, rgb + 64);
#else
  hn::StoreInterleaved3(r, g, b, kBytes, rgb);
#endif
}

void ycc_to_rgb(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, uint8_t* rgb, int count) {
  const Bytes zero = hn::Zero(kBytes);
  const Signed middle = hn::Set(kSigned, 128);
  for (int i = 0; i < count; i += kLanes) {
    const Bytes yy = hn::LoadU(kBytes, y + i), uu = hn::LoadU(kBytes, cb + i),
                vv = hn::LoadU(kBytes, cr + i);
    const auto lower = [&](Bytes v) {
      return hn::BitCast(kSigned, hn::InterleaveLower(kBytes, v, zero));
    };
    const auto upper = [&](Bytes v) {
      return hn::BitCast(kSigned, hn::InterleaveUpper(kBytes, v, zero));
    };
    const Rgb low = convert(lower(yy), hn::Sub(lower(uu), middle), hn::Sub(lower(vv), middle));
    const Rgb high = convert(upper(yy), hn::Sub(upper(uu), middle), hn::Sub(upper(vv), middle));
    store_rgb(pack_bytes(kBytes, low.r, high.r), pack_bytes(kBytes, low.g, high.g),
              pack_bytes(kBytes, low.b, high.b), rgb + 3 * i);
  }
}

void gray_to_rgb(const uint8_t* y, uint8_t* rgb, int count) {
  for (int i = 0; i < count; i += kLanes) {
    const Bytes value = hn::LoadU(kBytes, y + i);
    store_rgb(value, value, value, rgb + 3 * i);
  }
}

}  // namespace

const ColorKernels kColor{h2v1, h2v2, h1v2, ycc_to_rgb, gray_to_rgb};

}  // namespace fastload::FASTLOAD_LEVEL
