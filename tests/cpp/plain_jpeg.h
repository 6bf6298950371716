// The JPEG decoder's kernels spelled out, one value at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "decode/jpeg/bits.h"
#include "decode/jpeg/idct.h"

namespace fastload::test {

inline uint8_t clamp8(int value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }

// What ColorKernels (decode/jpeg/color.h) promises.
struct PlainColor {
  static void h2v1(const uint8_t* in, uint8_t* out, int count) {
    for (int i = 0; i < count; ++i) {
      out[2 * i] = static_cast<uint8_t>((3 * in[i] + in[i - 1] + 1) >> 2);
      out[2 * i + 1] = static_cast<uint8_t>((3 * in[i] + in[i + 1] + 2) >> 2);
    }
  }

  static void h2v2(const uint8_t* near, const uint8_t* far, uint8_t* out, int count) {
    const auto column = [=](int i) { return 3 * near[i] + far[i]; };
    for (int i = 0; i < count; ++i) {
      out[2 * i] = static_cast<uint8_t>((3 * column(i) + column(i - 1) + 8) >> 4);
      out[2 * i + 1] = static_cast<uint8_t>((3 * column(i) + column(i + 1) + 7) >> 4);
    }
  }

  static void h1v2(const uint8_t* near, const uint8_t* far, int bias, uint8_t* out, int count) {
    for (int i = 0; i < count; ++i) {
      out[i] = static_cast<uint8_t>((3 * near[i] + far[i] + bias) >> 2);
    }
  }

  // FIX(x) = x * 65536 rounded, as in jdcolor.c.
  static void ycc_to_rgb(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, uint8_t* rgb,
                         int count) {
    for (int i = 0; i < count; ++i, rgb += 3) {
      const int u = cb[i] - 128, v = cr[i] - 128;
      rgb[0] = clamp8(y[i] + ((91881 * v + 32768) >> 16));               // 1.40200
      rgb[1] = clamp8(y[i] + ((-22554 * u - 46802 * v + 32768) >> 16));  // 0.34414, 0.71414
      rgb[2] = clamp8(y[i] + ((116130 * u + 32768) >> 16));              // 1.77200
    }
  }

  static void gray_to_rgb(const uint8_t* y, uint8_t* rgb, int count) {
    for (int i = 0; i < count; ++i, rgb += 3) rgb[0] = rgb[1] = rgb[2] = y[i];
  }
};

// What IdctKernel (decode/jpeg/idct.h) promises.
struct PlainIdct {
  static constexpr int kPass1Shift = 11;  // CONST_BITS - PASS1_BITS
  static constexpr int kPass2Shift = 18;  // CONST_BITS + PASS1_BITS + 3
  static constexpr int kConstBits = 13;

  static int16_t wrap16(int32_t value) { return static_cast<int16_t>(value); }

  static int16_t saturate16(int32_t value) {
    return static_cast<int16_t>(std::clamp(value, -32768, 32767));
  }

  // a * x + b * y modulo 2^32, as pmaddwd.
  static uint32_t madd(int16_t x, int32_t a, int16_t y, int32_t b) {
    return static_cast<uint32_t>(x * a) + static_cast<uint32_t>(y * b);
  }

  static int16_t descale(uint32_t value, int shift) {
    return saturate16(static_cast<int32_t>(value + (1u << (shift - 1))) >> shift);
  }

  // One 8-point transform. The constants are jidctint.c's, combined as its SIMD versions do.
  static void transform8(const int16_t* in, int16_t* out, int step, int shift) {
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

  static void transform_block(const int16_t* coefs, const uint16_t* steps, uint8_t* out,
                              size_t stride) {
    std::array<int16_t, 64> work;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t product = uint32_t{steps[i]} * static_cast<uint32_t>(int32_t{coefs[i]});
      work[i] = wrap16(static_cast<int32_t>(product));
    }
    const bool flat = std::all_of(coefs + 8, coefs + 64, [](int16_t c) { return c == 0; });
    for (size_t column = 0; column < 8; ++column) {
      if (flat) {  // libjpeg-turbo's short cut; it differs where 16 bits overflow
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

  static void transform(int16_t* coefs, const uint16_t* steps, uint8_t* out, size_t stride,
                        int count) {
    for (int block = 0; block < count; ++block) {
      transform_block(coefs, steps, out, stride);
      std::fill(coefs, coefs + 64, int16_t{0});
      coefs += 64;
      out += 8;
    }
  }

  // Coefficients in natural order.
  static IdctKernel kernel() {
    IdctKernel plain{1, transform, {}};
    std::iota(plain.place_of.begin(), plain.place_of.end(), uint8_t{0});
    return plain;
  }
};

// What unstuff() (decode/jpeg/bits.h) promises.
inline UnstuffResult plain_unstuff(const uint8_t* source, const uint8_t* end, uint8_t* target) {
  while (source < end) {
    if (*source == 0xFF) {
      if (end - source < 2 || source[1] != 0) break;
      ++source;
      *target++ = 0xFF;
    } else {
      *target++ = *source;
    }
    ++source;
  }
  return {source, target};
}

}  // namespace fastload::test
