// The vector kernels: vector operations split pixels into planes, look up and join; everything
// between is plain loops over planes, which compilers vectorise for the instruction set of the file
// that includes this one. That file names its vector operations in a type V; everything here has
// internal linkage.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "transform/pixels/pointwise.h"

namespace fastload {
namespace {

constexpr size_t kBlock = 256;  // pixels; a whole number of steps of every V

struct Planes {
  alignas(64) uint8_t r[kBlock];
  alignas(64) uint8_t g[kBlock];
  alignas(64) uint8_t b[kBlock];
};

template <class V>
void split(const uint8_t* rgb, Planes& to) {
  for (size_t i = 0; i < kBlock; i += V::kPixels) {
    V::split(rgb + 3 * i, to.r + i, to.g + i, to.b + i);
  }
}

template <class V>
void join(const Planes& from, uint8_t* rgb) {
  for (size_t i = 0; i < kBlock; i += V::kPixels) {
    V::join(from.r + i, from.g + i, from.b + i, rgb + 3 * i);
  }
}

// Calls work(planes) for each block; the last one ends with zeros.
template <class V, typename Work>
void for_planes(const uint8_t* rgb, size_t pixels, const Work& work) {
  Planes planes;
  for (; pixels >= kBlock; pixels -= kBlock, rgb += 3 * kBlock) {
    split<V>(rgb, planes);
    work(planes);
  }
  if (pixels == 0) return;
  uint8_t rest[3 * kBlock] = {};
  std::memcpy(rest, rgb, 3 * pixels);
  split<V>(rest, planes);
  work(planes);
}

// The same, with what work() leaves in the planes written back.
template <class V, typename Work>
void change_planes(uint8_t* rgb, size_t pixels, const Work& work) {
  Planes planes;
  for (; pixels >= kBlock; pixels -= kBlock, rgb += 3 * kBlock) {
    split<V>(rgb, planes);
    work(planes);
    join<V>(planes, rgb);
  }
  if (pixels == 0) return;
  uint8_t rest[3 * kBlock] = {};
  std::memcpy(rest, rgb, 3 * pixels);
  split<V>(rest, planes);
  work(planes);
  join<V>(planes, rest);
  std::memcpy(rgb, rest, 3 * pixels);
}

template <class V>
void look_up(uint8_t* rgb, size_t bytes, const ByteTable& table) {
  const typename V::Table in_registers(table.data());
  size_t i = 0;
  for (; i + V::kPixels <= bytes; i += V::kPixels) in_registers.apply(rgb + i);
  for (; i < bytes; ++i) rgb[i] = table[rgb[i]];
}

template <class V>
void look_up_each(uint8_t* rgb, size_t pixels, const ByteTable* tables) {
  const typename V::Table red(tables[0].data());
  const typename V::Table green(tables[1].data());
  const typename V::Table blue(tables[2].data());
  change_planes<V>(rgb, pixels, [&](Planes& planes) {
    for (size_t i = 0; i < kBlock; i += V::kPixels) red.apply(planes.r + i);
    for (size_t i = 0; i < kBlock; i += V::kPixels) green.apply(planes.g + i);
    for (size_t i = 0; i < kBlock; i += V::kPixels) blue.apply(planes.b + i);
  });
}

void extremes(const uint8_t* rgb, size_t pixels, uint8_t* least, uint8_t* greatest) {
  constexpr size_t kStep = 192;  // bytes: whole vectors of whole pixels
  uint8_t low[kStep];
  uint8_t high[kStep] = {};
  std::fill_n(low, kStep, uint8_t{255});
  size_t i = 0;
  for (; i + kStep <= 3 * pixels; i += kStep) {
    for (size_t k = 0; k < kStep; ++k) {
      low[k] = std::min(low[k], rgb[i + k]);
      high[k] = std::max(high[k], rgb[i + k]);
    }
  }
  for (size_t k = 0; i < 3 * pixels; ++i, ++k) {
    low[k] = std::min(low[k], rgb[i]);
    high[k] = std::max(high[k], rgb[i]);
  }
  for (size_t c = 0; c < 3; ++c) {
    least[c] = 255;
    greatest[c] = 0;
    for (size_t k = c; k < kStep; k += 3) {
      least[c] = std::min(least[c], low[k]);
      greatest[c] = std::max(greatest[c], high[k]);
    }
  }
}

void luma_of_planes(const Planes& planes, uint8_t* __restrict__ luma) {
  for (size_t i = 0; i < kBlock; ++i) luma[i] = luma_of(planes.r[i], planes.g[i], planes.b[i]);
}

template <class V>
void grayscale(uint8_t* rgb, size_t pixels) {
  change_planes<V>(rgb, pixels, [](Planes& planes) {
    luma_of_planes(planes, planes.r);
    std::memcpy(planes.g, planes.r, kBlock);
    std::memcpy(planes.b, planes.r, kBlock);
  });
}

template <class V>
uint64_t luma_sum(const uint8_t* rgb, size_t pixels) {
  uint64_t sum = 0;
  for_planes<V>(rgb, pixels, [&](const Planes& planes) {
    uint32_t part = 0;
    for (size_t i = 0; i < kBlock; ++i) {
      part += luma_of(planes.r[i], planes.g[i], planes.b[i]);
    }
    sum += part;
  });
  return sum;
}

void blend_plane(const uint8_t* __restrict__ from, float factor, uint8_t* __restrict__ to) {
  for (size_t i = 0; i < kBlock; ++i) to[i] = blended(from[i], to[i], factor);
}

template <class V>
void saturation(uint8_t* rgb, size_t pixels, float factor) {
  change_planes<V>(rgb, pixels, [&](Planes& planes) {
    alignas(64) uint8_t luma[kBlock];
    luma_of_planes(planes, luma);
    blend_plane(luma, factor, planes.r);
    blend_plane(luma, factor, planes.g);
    blend_plane(luma, factor, planes.b);
  });
}

// number / divisor, correctly rounded, from the rounded 1 / divisor (Markstein).
inline float quotient(float number, float divisor, float reciprocal) {
  const float near = number * reciprocal;
  return std::fma(std::fma(-divisor, near, number), reciprocal, near);
}

// The scalar turn() in three loops: over bytes, over floats, and over bytes again.
struct Hues {
  alignas(64) uint8_t most[kBlock];
  alignas(64) uint8_t range[kBlock];
  alignas(64) uint8_t part[kBlock];
  alignas(64) int8_t base[kBlock];  // hue = base + sign * part / range, in sixths of a turn
  alignas(64) int8_t sign[kBlock];
  alignas(64) uint8_t sector[kBlock];
  alignas(64) uint8_t low[kBlock];
  alignas(64) uint8_t falling[kBlock];
  alignas(64) uint8_t rising[kBlock];
};

void hue_terms(const Planes& planes, Hues& hues) {
  for (size_t i = 0; i < kBlock; ++i) {
    const uint8_t r = planes.r[i];
    const uint8_t g = planes.g[i];
    const uint8_t b = planes.b[i];
    const uint8_t high = std::max(std::max(r, g), b);
    const uint8_t low = std::min(std::min(r, g), b);
    const uint8_t middle = std::max(std::min(r, g), std::min(std::max(r, g), b));
    const bool red = r == high;
    const bool green = g == high;
    const bool other = red || green ? b == low : r == low;
    // 1 - q, q - 1; 1 + q, 3 - q; 3 + q, 5 - q
    const int8_t first = red || green ? 1 : 3;
    const int8_t second = red ? -1 : green ? 3 : 5;
    hues.base[i] = other ? first : second;
    hues.sign[i] = other == red ? -1 : 1;
    hues.most[i] = high;
    hues.range[i] = static_cast<uint8_t>(high - low);
    hues.part[i] = static_cast<uint8_t>(high - middle);
  }
}

void turn_hues(Hues& hues, int shift) {
  for (size_t i = 0; i < kBlock; ++i) {
    // Gray has no saturation, whatever its hue; 1 keeps the divisions out of trouble.
    const auto range = static_cast<float>(hues.range[i]);
    const auto spread = static_cast<float>(std::max(hues.range[i], uint8_t{1}));
    const auto value = static_cast<float>(hues.most[i]);
    const auto positive = static_cast<float>(std::max(hues.most[i], uint8_t{1}));
    const float q = static_cast<float>(hues.part[i]) / spread;
    const float sixths = static_cast<float>(hues.base[i]) + static_cast<float>(hues.sign[i]) * q;
    float hue = quotient(sixths, 6.0f, 1.0f / 6.0f);
    hue += hue < 0.0f ? 1.0f : 0.0f;
    const auto near = static_cast<int>(255.0f * hue);
    const float beyond = std::fma(255.0f, hue, -static_cast<float>(near));
    const int turned = (near - (beyond < 0.0f ? 1 : 0) + shift) & 255;
    const auto saturated = static_cast<int>(255.0f * (range / positive));
    const int at = (6 * turned * 32897) >> 23;  // 6 * turned / 255
    const float f = quotient(static_cast<float>(6 * turned - 255 * at), 255.0f, 1.0f / 255.0f);
    const float s = quotient(static_cast<float>(saturated), 255.0f, 1.0f / 255.0f);
    const auto rounded = [](float x) { return static_cast<uint8_t>(static_cast<int>(x + 0.5f)); };
    hues.sector[i] = static_cast<uint8_t>(at);
    hues.low[i] = rounded(value * (1.0f - s));
    hues.falling[i] = rounded(value * (1.0f - s * f));
    hues.rising[i] = rounded(value * (1.0f - s * (1.0f - f)));
  }
}

void colours_of(const Hues& hues, Planes& planes) {
  for (size_t i = 0; i < kBlock; ++i) {
    const uint8_t at = hues.sector[i];  // 6 is 0 again
    const uint8_t v = hues.most[i];
    const uint8_t p = hues.low[i];
    const uint8_t q = hues.falling[i];
    const uint8_t t = hues.rising[i];
    planes.r[i] = at == 1 ? q : at == 2 || at == 3 ? p : at == 4 ? t : v;
    planes.g[i] = at == 1 || at == 2 ? v : at == 3 ? q : at == 4 || at == 5 ? p : t;
    planes.b[i] = at == 2 ? t : at == 3 || at == 4 ? v : at == 5 ? q : p;
  }
}

template <class V>
void hue(uint8_t* rgb, size_t pixels, uint8_t shift) {
  Hues hues;
  change_planes<V>(rgb, pixels, [&](Planes& planes) {
    hue_terms(planes, hues);
    turn_hues(hues, shift);
    colours_of(hues, planes);
  });
}

void sharpen(const uint8_t* __restrict__ above, const uint8_t* __restrict__ row,
             const uint8_t* __restrict__ below, size_t bytes, float factor,
             uint8_t* __restrict__ out) {
  for (size_t i = 3; i < bytes - 3; ++i) {
    const int column = above[i] + row[i] + below[i];
    const int sum = above[i - 3] + row[i - 3] + below[i - 3] + column + above[i + 3] + row[i + 3] +
                    below[i + 3] + 4 * row[i];
    const auto twice = static_cast<uint16_t>(2 * sum + 13);
    // / 26, exact for all sums
    const auto smooth = static_cast<uint16_t>((uint32_t{twice} * 20165u) >> 19);
    out[i] = blended(smooth, row[i], factor);
  }
}

template <class V>
constexpr PointKernels kernels_of() {
  return {look_up<V>,  look_up_each<V>, extremes, grayscale<V>,
          luma_sum<V>, saturation<V>,   hue<V>,   sharpen};
}

}  // namespace
}  // namespace fastload
