// The JPEG decoder's kernels spelled out, one value at a time.
#pragma once

#include <algorithm>
#include <cstdint>

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

}  // namespace fastload::test
