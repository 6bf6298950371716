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

template <class V>
void permute(uint8_t* rgb, size_t pixels, const uint8_t* order) {
  change_planes<V>(rgb, pixels, [&](Planes& planes) {
    const Planes before = planes;
    const uint8_t* const from[] = {before.r, before.g, before.b};
    std::memcpy(planes.r, from[order[0]], kBlock);
    std::memcpy(planes.g, from[order[1]], kBlock);
    std::memcpy(planes.b, from[order[2]], kBlock);
  });
}

void extremes(const uint8_t* __restrict__ rgb, size_t pixels, uint8_t* least, uint8_t* greatest) {
  constexpr size_t kStep = 192;  // bytes: whole vectors of whole pixels
  alignas(64) uint8_t low[kStep];
  alignas(64) uint8_t high[kStep] = {};
  std::fill_n(low, kStep, uint8_t{255});
  const auto take = [&](size_t at, size_t k) {
    const uint8_t value = rgb[at];
    low[k] = value < low[k] ? value : low[k];
    high[k] = value > high[k] ? value : high[k];
  };
  size_t i = 0;
  for (; i + kStep <= 3 * pixels; i += kStep) {
    for (size_t k = 0; k < kStep; ++k) take(i + k, k);
  }
  for (size_t k = 0; i < 3 * pixels; ++i, ++k) take(i, k);
  for (size_t c = 0; c < 3; ++c) {
    least[c] = 255;
    greatest[c] = 0;
    for (size_t k = c; k < kStep; k += 3) {
      least[c] = std::min(least[c], low[k]);
      greatest[c] = std::max(greatest[c], high[k]);
    }
  }
}

// luma_of() in 16 bits: each weight is 256 * coarse + fine, and what is below the upper byte of the
// fine parts' sum does not reach the result.
void luma_of_planes(const Planes& planes, uint8_t* __restrict__ luma) {
  const LumaWeights weights = kLumaWeights;
  for (size_t i = 0; i < kBlock; ++i) {
    const uint16_t r = planes.r[i];
    const uint16_t g = planes.g[i];
    const uint16_t b = planes.b[i];
    const auto coarse = static_cast<uint16_t>(weights.coarse[0] * r + weights.coarse[1] * g +
                                              weights.coarse[2] * b);
    const auto fine =
        static_cast<uint16_t>(weights.fine[0] * r + weights.fine[1] * g + weights.fine[2] * b);
    luma[i] = static_cast<uint8_t>(static_cast<uint16_t>(coarse + (fine >> 8) + 128) >> 8);
  }
}

template <class V>
void grayscale(uint8_t* rgb, size_t pixels) {
  change_planes<V>(rgb, pixels, [](Planes& planes) {
    alignas(64) uint8_t luma[kBlock];
    luma_of_planes(planes, luma);
    for (uint8_t* plane : {planes.r, planes.g, planes.b}) std::memcpy(plane, luma, kBlock);
  });
}

template <class V>
uint64_t luma_sum(const uint8_t* rgb, size_t pixels) {
  uint64_t sum = 0;
  for_planes<V>(rgb, pixels, [&](const Planes& planes) {
    alignas(64) uint8_t luma[kBlock];
    luma_of_planes(planes, luma);
    uint32_t part = 0;
    for (size_t i = 0; i < kBlock; ++i) part += luma[i];
    sum += part;
  });
  return sum;
}

template <class V>
void saturation(uint8_t* rgb, size_t pixels, float factor) {
  const typename V::Blend blend(factor);
  change_planes<V>(rgb, pixels, [&](Planes& planes) {
    alignas(64) uint8_t luma[kBlock];
    luma_of_planes(planes, luma);
    for (uint8_t* plane : {planes.r, planes.g, planes.b}) {
      for (size_t i = 0; i < kBlock; i += V::kPixels) blend.apply(luma + i, plane + i, plane + i);
    }
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

// 255 where it is so: choices between bytes, which compilers vectorise.
inline uint8_t where(bool so) { return so ? 255 : 0; }
inline uint8_t pick(uint8_t where, uint8_t yes, uint8_t no) {
  return static_cast<uint8_t>((yes & where) | (no & ~where));
}

void hue_terms(const Planes& planes, Hues& hues) {
  for (size_t i = 0; i < kBlock; ++i) {
    const uint8_t r = planes.r[i];
    const uint8_t g = planes.g[i];
    const uint8_t b = planes.b[i];
    const uint8_t larger = r > g ? r : g;
    const uint8_t smaller = r > g ? g : r;
    const uint8_t high = larger > b ? larger : b;
    const uint8_t low = smaller < b ? smaller : b;
    const uint8_t inner = larger < b ? larger : b;
    const uint8_t middle = smaller > inner ? smaller : inner;
    const uint8_t red = where(r == high);
    const uint8_t green = where(g == high);
    const uint8_t other = pick(red | green, where(b == low), where(r == low));
    // 1 - q, q - 1; 1 + q, 3 - q; 3 + q, 5 - q
    const uint8_t first = pick(red | green, 1, 3);
    const uint8_t second = pick(red, 255, pick(green, 3, 5));
    hues.base[i] = static_cast<int8_t>(pick(other, first, second));
    hues.sign[i] = static_cast<int8_t>(pick(other ^ red, 1, 255));
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
    const uint8_t one = where(at == 1);
    const uint8_t two = where(at == 2);
    const uint8_t three = where(at == 3);
    const uint8_t four = where(at == 4);
    const uint8_t five = where(at == 5);
    planes.r[i] = pick(one, q, pick(two | three, p, pick(four, t, v)));
    planes.g[i] = pick(one | two, v, pick(three, q, pick(four | five, p, t)));
    planes.b[i] = pick(two, t, pick(three | four, v, pick(five, q, p)));
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

constexpr size_t kRun = 64;  // bytes; loops over rows do whole runs, past the end of the row

size_t whole_runs(size_t bytes) { return (bytes + kRun - 1) / kRun * kRun; }

// Sums of three rows' bytes.
void add_rows(const uint8_t* __restrict__ above, const uint8_t* __restrict__ row,
              const uint8_t* __restrict__ below, size_t bytes, uint16_t* __restrict__ sums) {
  for (size_t from = 0; from < bytes; from += kRun) {
    for (size_t i = from; i < from + kRun; ++i) {
      sums[i] = static_cast<uint16_t>(above[i] + row[i] + below[i]);
    }
  }
}

// The smoothed bytes of the middle row from such sums, which begin a pixel further left.
void smooth_row(const uint16_t* __restrict__ sums, const uint8_t* __restrict__ row, size_t bytes,
                uint8_t* __restrict__ smooth) {
  for (size_t from = 0; from < bytes; from += kRun) {
    for (size_t i = from; i < from + kRun; ++i) {
      const auto sum = static_cast<uint16_t>(sums[i] + sums[i + 3] + sums[i + 6] + 4 * row[i]);
      const auto twice = static_cast<uint16_t>(2 * sum + 13);
      // / 26, exact for all sums
      smooth[i] = static_cast<uint8_t>(static_cast<uint16_t>((twice * 20165u) >> 16) >> 3);
    }
  }
}

template <class V>
void sharpen(uint8_t* rgb, size_t row_bytes, size_t rows, float factor, uint8_t* scratch) {
  const typename V::Blend blend(factor);
  const size_t run_bytes = whole_runs(row_bytes);
  uint8_t* above = scratch;  // as it was: the picture has the new one already
  uint8_t* row = above + run_bytes;
  uint8_t* const smooth = row + run_bytes;
  auto* const sums = reinterpret_cast<uint16_t*>(smooth + run_bytes);  // and a run that nobody uses
  std::memcpy(above, rgb, row_bytes);
  const size_t end = row_bytes - 3;
  uint8_t* out = rgb + row_bytes;
  for (size_t y = 1; y + 1 < rows; ++y, out += row_bytes) {
    std::memcpy(row, out, row_bytes);
    add_rows(above, row, out + row_bytes, run_bytes, sums);
    smooth_row(sums, row + 3, end - 3, smooth);
    const auto step = [&](size_t i) { blend.apply(smooth + i - 3, row + i, out + i); };
    size_t i = 3;
    for (; i + V::kPixels <= end; i += V::kPixels) step(i);
    if (i < end && end >= V::kPixels + 3) {
      step(end - V::kPixels);  // some again: it comes from `row`
      i = end;
    }
    for (; i < end; ++i) out[i] = blended(smooth[i - 3], row[i], factor);
    std::swap(above, row);
  }
}

template <class V>
constexpr PointKernels kernels_of() {
  return {look_up<V>,  look_up_each<V>, permute<V>, extremes,  grayscale<V>,
          luma_sum<V>, saturation<V>,   hue<V>,     sharpen<V>};
}

}  // namespace
}  // namespace fastload
