#include "decode/jpeg/idct.h"

#include <algorithm>

#include "decode/jpeg/parser.h"

namespace fastload {
namespace {

constexpr int kPass1Shift = 11;  // CONST_BITS - PASS1_BITS
constexpr int kPass2Shift = 18;  // CONST_BITS + PASS1_BITS + 3
constexpr int kConstBits = 13;

int16_t wrap16(int32_t value) { return static_cast<int16_t>(value); }

int16_t saturate16(int32_t value) { return static_cast<int16_t>(std::clamp(value, -32768, 32767)); }

// a * x + b * y modulo 2^32, as pmaddwd.
uint32_t madd(int16_t x, int32_t a, int16_t y, int32_t b) {
  return static_cast<uint32_t>(x * a) + static_cast<uint32_t>(y * b);
}

int16_t descale(uint32_t value, int shift) {
  return saturate16(static_cast<int32_t>(value + (1u << (shift - 1))) >> shift);
}

// One 8-point transform. The constants are jidctint.c's, combined as its SIMD versions do.
void transform8(const int16_t* in, int16_t* out, int step, int shift) {
  const int16_t in0 = in[0], in1 = in[step], in2 = in[2 * step], in3 = in[3 * step];
  const int16_t in4 = in[4 * step], in5 = in[5 * step], in6 = in[6 * step], in7 = in[7 * step];

  const uint32_t even0 = static_cast<uint32_t>(wrap16(in0 + in4)) << kConstBits;
  const uint32_t even1 = static_cast<uint32_t>(wrap16(in0 - in4)) << kConstBits;
  const uint32_t even2 = madd(in2, 4433, in6, -10704);
  const uint32_t even3 = madd(in2, 10703, in6, 4433);
  const uint32_t sum0 = even0 + even3, sum3 = even0 - even3;
  const uint32_t sum1 = even1 + even2, sum2 = even1 - even2;

  const int16_t z3 = wrap16(in3 + in7), z4 = wrap16(in1 + in5);
  const uint32_t odd_a = madd(z3, -6436, z4, 9633);
  const uint32_t odd_b = madd(z3, 9633, z4, 6437);
  const uint32_t odd0 = madd(in7, -4927, in1, -7373) + odd_a;
  const uint32_t odd1 = madd(in5, -4176, in3, -20995) + odd_b;
  const uint32_t odd2 = madd(in5, -20995, in3, 4177) + odd_a;
  const uint32_t odd3 = madd(in7, -7373, in1, 4926) + odd_b;

  out[0] = descale(sum0 + odd3, shift);
  out[7 * step] = descale(sum0 - odd3, shift);
  out[step] = descale(sum1 + odd2, shift);
  out[6 * step] = descale(sum1 - odd2, shift);
  out[2 * step] = descale(sum2 + odd1, shift);
  out[5 * step] = descale(sum2 - odd1, shift);
  out[3 * step] = descale(sum3 + odd0, shift);
  out[4 * step] = descale(sum3 - odd0, shift);
}

void transform_block(const int16_t* coefs, const uint16_t* steps, uint8_t* out, size_t stride) {
  std::array<int16_t, 64> work;
  for (size_t i = 0; i < 64; ++i)
    work[i] =
        wrap16(static_cast<int32_t>(uint32_t{steps[i]} * static_cast<uint32_t>(int32_t{coefs[i]})));
  const bool flat = std::all_of(coefs + 8, coefs + 64, [](int16_t c) { return c == 0; });
  for (size_t column = 0; column < 8; ++column) {
    if (flat) {  // libjpeg-turbo's short cut; it differs from the transform where 16 bits overflow
      const int16_t value = wrap16(work[column] * 4);
      for (size_t row = 0; row < 8; ++row) work[row * 8 + column] = value;
    } else {
      transform8(work.data() + column, work.data() + column, 8, kPass1Shift);
    }
  }
  for (size_t row = 0; row < 8; ++row) {
    int16_t* const line = work.data() + row * 8;
    transform8(line, line, 1, kPass2Shift);
    for (size_t x = 0; x < 8; ++x) {
      out[row * stride + x] = static_cast<uint8_t>(std::clamp<int>(line[x], -128, 127) + 128);
    }
  }
}

}  // namespace

const std::array<int32_t, 14> kIdctPairsOfRows{
    idct_pair(8192, 8192),    idct_pair(8192, -8192),  idct_pair(10703, 4433),
    idct_pair(4433, -10704),  idct_pair(-4433, 10704), idct_pair(-10703, -4433),
    idct_pair(11363, 9633),   idct_pair(6437, 2260),   idct_pair(9633, -2259),
    idct_pair(-11362, -6436), idct_pair(6437, -11362), idct_pair(2261, 9633),
    idct_pair(2260, -6436),   idct_pair(9633, -11363),
};

alignas(16) const std::array<std::array<int32_t, 4>, 4> kIdctPairsOfColumns{{
    {idct_pair(8192, 10703), idct_pair(8192, 4433), idct_pair(8192, -4433),
     idct_pair(8192, -10703)},
    {idct_pair(8192, 4433), idct_pair(-8192, -10704), idct_pair(-8192, 10704),
     idct_pair(8192, -4433)},
    {idct_pair(11363, 9633), idct_pair(9633, -2259), idct_pair(6437, -11362),
     idct_pair(2260, -6436)},
    {idct_pair(6437, 2260), idct_pair(-11362, -6436), idct_pair(2261, 9633),
     idct_pair(9633, -11363)},
}};

namespace {

// The place of each coefficient of a group's first block, four blocks to a vector.
constexpr std::array<std::array<int, 8>, 8> kPairedPlaces = [] {
  std::array<std::array<int, 8>, 8> places{};
  for (size_t pair = 0; pair < 4; ++pair) {
    for (size_t i = 0; i < 8; ++i) {
      for (size_t which = 0; which < 2; ++which) {
        const size_t vector = 2 * pair + i / 4;
        places[kPairRows[pair][which]][kPairColumns[i]] =
            static_cast<int>(vector * 32 + i % 4 * 2 + which);
      }
    }
  }
  return places;
}();

}  // namespace

CoefPlaces IdctKernel::places() const {
  CoefPlaces places;
  for (int k = 1; k <= 64; ++k) {
    const size_t natural = kZigzag[static_cast<size_t>(k - 1)];
    const auto row = static_cast<int>(natural / 8), column = static_cast<int>(natural % 8);
    places.set(k, is_paired ? kPairedPlaces[natural / 8][natural % 8] : row * 8 * group + column);
  }
  return places;
}

IdctKernel idct_kernel(SimdLevel level) {
#if defined(__x86_64__)
  if (level == SimdLevel::kAvx512) return {4, idct_avx512, true};
  if (level == SimdLevel::kAvx2) return {2, idct_avx2};
#elif defined(__aarch64__)
  if (level == SimdLevel::kNeon) return {1, idct_neon};
#endif
  static_cast<void>(level);
  return {1, idct_scalar};
}

void idct_scalar(int16_t* coefs, const uint16_t* steps, uint8_t* out, size_t stride, int count) {
  for (int block = 0; block < count; ++block) {
    transform_block(coefs, steps, out, stride);
    std::fill(coefs, coefs + 64, int16_t{0});
    coefs += 64;
    out += 8;
  }
}

}  // namespace fastload
