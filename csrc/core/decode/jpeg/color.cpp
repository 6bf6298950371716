#include "decode/jpeg/color.h"

#include <algorithm>

namespace fastload {
namespace {

uint8_t clamp8(int value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }

void h2v1(const uint8_t* in, uint8_t* out, int count) {
  for (int i = 0; i < count; ++i) {
    out[2 * i] = static_cast<uint8_t>((3 * in[i] + in[i - 1] + 1) >> 2);
    out[2 * i + 1] = static_cast<uint8_t>((3 * in[i] + in[i + 1] + 2) >> 2);
  }
}

void h2v2(const uint8_t* near, const uint8_t* far, uint8_t* out, int count) {
  const auto column = [=](int i) { return 3 * near[i] + far[i]; };
  for (int i = 0; i < count; ++i) {
    out[2 * i] = static_cast<uint8_t>((3 * column(i) + column(i - 1) + 8) >> 4);
    out[2 * i + 1] = static_cast<uint8_t>((3 * column(i) + column(i + 1) + 7) >> 4);
  }
}

void h1v2(const uint8_t* near, const uint8_t* far, int bias, uint8_t* out, int count) {
  for (int i = 0; i < count; ++i) out[i] = static_cast<uint8_t>((3 * near[i] + far[i] + bias) >> 2);
}

// FIX(x) = x * 65536 rounded, as in jdcolor.c.
void ycc_to_rgb(const uint8_t* y, const uint8_t* cb, const uint8_t* cr, uint8_t* rgb, int count) {
  for (int i = 0; i < count; ++i, rgb += 3) {
    const int u = cb[i] - 128, v = cr[i] - 128;
    rgb[0] = clamp8(y[i] + ((91881 * v + 32768) >> 16));               // 1.40200
    rgb[1] = clamp8(y[i] + ((-22554 * u - 46802 * v + 32768) >> 16));  // 0.34414, 0.71414
    rgb[2] = clamp8(y[i] + ((116130 * u + 32768) >> 16));              // 1.77200
  }
}

void gray_to_rgb(const uint8_t* y, uint8_t* rgb, int count) {
  for (int i = 0; i < count; ++i, rgb += 3) rgb[0] = rgb[1] = rgb[2] = y[i];
}

}  // namespace

const ColorKernels kColorScalar{h2v1, h2v2, h1v2, ycc_to_rgb, gray_to_rgb};

const ColorKernels& color_kernels(SimdLevel level) {
#if defined(__x86_64__)
  if (level == SimdLevel::kAvx512) return kColorAvx512;
  if (level == SimdLevel::kAvx2) return kColorAvx2;
#elif defined(__aarch64__)
  if (level == SimdLevel::kNeon) return kColorNeon;
#endif
  static_cast<void>(level);
  return kColorScalar;
}

}  // namespace fastload
