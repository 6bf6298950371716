// What the kernels of transform/pixels/pointwise are compared with: pixel by pixel.
#pragma once

#include <algorithm>

#include "transform/pixels/pointwise.h"

namespace fastload::test {
namespace plain {

inline void look_up(uint8_t* rgb, size_t bytes, const ByteTable& table) {
  for (size_t i = 0; i < bytes; ++i) rgb[i] = table[rgb[i]];
}

inline void look_up_each(uint8_t* rgb, size_t pixels, const ByteTable* tables) {
  for (uint8_t* p = rgb; p != rgb + 3 * pixels; p += 3) {
    for (size_t c = 0; c < 3; ++c) p[c] = tables[c][p[c]];
  }
}

inline void permute(uint8_t* rgb, size_t pixels, const uint8_t* order) {
  for (uint8_t* p = rgb; p != rgb + 3 * pixels; p += 3) {
    const uint8_t channels[] = {p[0], p[1], p[2]};
    for (size_t c = 0; c < 3; ++c) p[c] = channels[order[c]];
  }
}

inline void extremes(const uint8_t* rgb, size_t pixels, uint8_t* least, uint8_t* greatest) {
  std::fill_n(least, 3, uint8_t{255});
  std::fill_n(greatest, 3, uint8_t{0});
  for (const uint8_t* p = rgb; p != rgb + 3 * pixels; p += 3) {
    for (size_t c = 0; c < 3; ++c) {
      least[c] = std::min(least[c], p[c]);
      greatest[c] = std::max(greatest[c], p[c]);
    }
  }
}

inline void grayscale(uint8_t* rgb, size_t pixels) {
  for (uint8_t* p = rgb; p != rgb + 3 * pixels; p += 3) {
    p[0] = p[1] = p[2] = luma_of(p[0], p[1], p[2]);
  }
}

inline uint64_t luma_sum(const uint8_t* rgb, size_t pixels) {
  uint64_t sum = 0;
  for (const uint8_t* p = rgb; p != rgb + 3 * pixels; p += 3) sum += luma_of(p[0], p[1], p[2]);
  return sum;
}

inline void saturation(uint8_t* rgb, size_t pixels, float factor) {
  for (uint8_t* p = rgb; p != rgb + 3 * pixels; p += 3) {
    const uint8_t luma = luma_of(p[0], p[1], p[2]);
    for (size_t c = 0; c < 3; ++c) p[c] = blended(luma, p[c], factor);
  }
}

// libImaging/Convert.c, rgb2hsv_row and hsv2rgb_row. Pillow computes in double here and there:
// float gives the same bytes (all colours, all shifts), if 255 h is not rounded up to a whole
// number.
inline void turn(uint8_t* p, uint8_t shift) {
  const int r = p[0];
  const int g = p[1];
  const int b = p[2];
  const int most = std::max({r, g, b});
  const int least = std::min({r, g, b});
  if (most == least) return;  // gray has no hue
  const auto range = static_cast<float>(most - least);
  const float part = static_cast<float>(most - (r + g + b - most - least)) / range;
  float hue = 0;  // in sixths of a turn
  if (r == most) {
    hue = b == least ? 1.0f - part : part - 1.0f;
  } else if (g == most) {
    hue = b == least ? 1.0f + part : 3.0f - part;
  } else {
    hue = r == least ? 3.0f + part : 5.0f - part;
  }
  hue /= 6.0f;
  if (hue < 0) hue += 1.0f;
  const int turned = (static_cast<int>(255.0 * static_cast<double>(hue)) + shift) & 255;
  const auto saturated = static_cast<int>(255.0f * (range / static_cast<float>(most)));

  const int sector = 6 * turned / 255;
  const float f = static_cast<float>(6 * turned - 255 * sector) / 255.0f;
  const float s = static_cast<float>(saturated) / 255.0f;
  const auto value = static_cast<float>(most);
  const auto rounded = [](float x) { return static_cast<uint8_t>(x + 0.5f); };
  const auto v = static_cast<uint8_t>(most);
  const uint8_t low = rounded(value * (1.0f - s));
  const uint8_t falling = rounded(value * (1.0f - s * f));
  const uint8_t rising = rounded(value * (1.0f - s * (1.0f - f)));
  const uint8_t colours[6][3] = {{v, rising, low},  {falling, v, low}, {low, v, rising},
                                 {low, falling, v}, {rising, low, v},  {v, low, falling}};
  std::copy_n(colours[sector % 6], 3, p);
}

inline void hue(uint8_t* rgb, size_t pixels, uint8_t shift) {
  for (uint8_t* p = rgb; p != rgb + 3 * pixels; p += 3) turn(p, shift);
}

inline void sharpen(uint8_t* rgb, size_t row_bytes, size_t rows, float factor, uint8_t* scratch) {
  uint8_t* above = scratch;  // as it was: the picture has the new one already
  uint8_t* row = scratch + row_bytes;
  std::copy_n(rgb, row_bytes, above);
  uint8_t* out = rgb + row_bytes;
  for (size_t y = 1; y + 1 < rows; ++y, out += row_bytes) {
    const uint8_t* below = out + row_bytes;
    std::copy_n(out, row_bytes, row);
    for (size_t i = 3; i + 3 < row_bytes; ++i) {
      const int around = above[i - 3] + above[i] + above[i + 3] + row[i - 3] + row[i + 3] +
                         below[i - 3] + below[i] + below[i + 3];
      const int sum = around + 5 * row[i];
      // The weights' sum is 13; rounded.
      out[i] = blended((2 * sum + 13) / 26, row[i], factor);
    }
    std::swap(above, row);
  }
}

}  // namespace plain

constexpr PointKernels kPlainPointKernels{
    plain::look_up,  plain::look_up_each, plain::permute, plain::extremes, plain::grayscale,
    plain::luma_sum, plain::saturation,   plain::hue,     plain::sharpen};

}  // namespace fastload::test
