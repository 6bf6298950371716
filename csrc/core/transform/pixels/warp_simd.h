// Bilinear and bicubic warps, in steps that all vector kernels share. Each value is a sum of bytes
// by their weights, taken in float; where it is nearer to a whole number than its error, the value
// is computed plainly. V names the instruction set, beside what warp_along_simd.h wants of it:
//   V::kColumns            columns whose places are found at once; V::Doubles has as many
//   V::all, V::counted(x)  of one number; x, x + 1, ...
//   V::floor
//   V::where_inside(x, width, y, height, that)   that, or -1 where x or y is outside
//   V::singles(doubles)    V::Singles, floats
//   V::to_words, V::to_floats  of Doubles, of Singles, stored
//   V::to_fours(a, b, c, d, to)                  a[0], b[0], c[0], d[0], a[1], ... as floats
//   V::two_rows(above, below, part)   of the eight bytes at each, the part-th V::kLanes
//   V::spread(four, part)             of each of four floats four, of these the part-th V::kLanes
//   V::quarters(sums)                 four sums, of the lanes 0, 4, ..., the lanes 1, 5, ...
//   V::widen, V::narrow               pixels of three bytes to four, and back
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/vectors.h"
#include "transform/pixels/warp_along_simd.h"
#include "transform/pixels/warp_kernels.h"
#include "transform/pixels/warp_scaled_simd.h"

namespace fastload {
namespace {  // each file has its own, compiled for its instruction set

inline __m128i load64(const void* from) {
  return _mm_loadl_epi64(static_cast<const __m128i*>(from));
}
inline __m128i load128(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

// A picture of four bytes a pixel, whose outermost pixels are repeated kBorder times on each side:
// what a kernel reads is always there.
struct WidePicture {
  static constexpr int kBorder = 2;
  static constexpr int kMore = 16;  // pixels of a row, which vector stores may write

  const uint8_t* pixels;                                            // with the border
  int width, height;                                                // without
  [[nodiscard]] int stride() const { return width + 2 * kBorder; }  // pixels
};

inline size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Memory of a warp that moves pixels anywhere: the wide picture, and what is known of a row.
struct WarpScratch {
  WarpScratch(uint8_t* memory, const Picture& from, const Picture& to)
      : count(row_count(to.width)),
        wide(memory),
        across(reinterpret_cast<float*>(memory + wide_bytes(from.width, from.height))),
        down(across + 4 * count),
        sums(down + 4 * count),
        pixel(reinterpret_cast<int32_t*>(sums + 4 * count)),
        line(reinterpret_cast<uint8_t*>(pixel + count)) {}

  static size_t wide_bytes(int width, int height) {
    const size_t stride = static_cast<size_t>(width) + 2 * WidePicture::kBorder;
    return aligned(4 * (stride * (static_cast<size_t>(height) + 2 * WidePicture::kBorder) +
                        WidePicture::kMore));
  }
  static size_t row_count(int width) {
    return aligned(static_cast<size_t>(width)) + WidePicture::kMore;
  }
  static size_t bytes(const Picture& from, const Picture& to) {
    return std::max(AlongScratch::bytes(from.width),
                    wide_bytes(from.width, from.height) + 14 * sizeof(float) * row_count(to.width));
  }

  size_t count;
  uint8_t* wide;
  float* across;   // weights: of each pixel, four; bilinear: of both rows
  float* down;     // the first weight of all pixels, the second, ...
  float* sums;     // of each pixel, four
  int32_t* pixel;  // the first neighbour, counted in the wide picture; -1: outside
  uint8_t* line;   // pixels of four bytes
};

template <typename V>
WidePicture widened(const Picture& from, uint8_t* memory) {
  constexpr int kBorder = WidePicture::kBorder;
  const WidePicture wide{memory, from.width, from.height};
  const size_t row = size_t{4} * static_cast<size_t>(wide.stride());
  const size_t last = static_cast<size_t>(from.width) - 1;
  uint8_t* const first = memory + kBorder * row;
  for (int y = 0; y < from.height; ++y) {
    uint8_t* const to = first + row * static_cast<size_t>(y);
    uint8_t* const inner = to + 4 * kBorder;
    V::widen(from.pixels + size_t{3} * (last + 1) * static_cast<size_t>(y), from.width, inner);
    for (size_t i = 0; i < kBorder; ++i) {
      std::memcpy(to + 4 * i, inner, 4);
      std::memcpy(inner + 4 * (last + 1 + i), inner + 4 * last, 4);
    }
  }
  uint8_t* const end = first + row * static_cast<size_t>(from.height);
  for (size_t i = 0; i < kBorder; ++i) {
    std::memcpy(memory + i * row, first, row);
    std::memcpy(end + i * row, end - row, row);
  }
  return wide;
}

// One row of the picture after the other.
template <typename V, int kTaps>
class Anywhere {
 public:
  Anywhere(const Picture& from, const Warp& warp, uint8_t* memory, const Picture& to)
      : from_(from),
        warp_(warp),
        memory_(memory, from, to),
        wide_(widened<V>(from, memory_.wide)),
        fill_(_mm_add_ps(_mm_setr_ps(warp.fill[0], warp.fill[1], warp.fill[2], 0.0F),
                         _mm_set1_ps(0.5F))),
        to_(to) {}

  void run() const {
    const size_t bytes = size_t{3} * static_cast<size_t>(to_.width);
    for (int y = 0; y < to_.height; ++y) {
      find(y);
      add_up();
      round(y);
      V::narrow(memory_.line, to_.width, to_.pixels + bytes * static_cast<size_t>(y));
    }
  }

 private:
  using Doubles = typename V::Doubles;
  using Singles = typename V::Singles;
  using Floats = typename V::Floats;
  static constexpr int kParts = 16 / V::kLanes;  // of four pixels of four bytes
  // As in warp_along_simd.h. Bilinear: parts and their weights are rounded six times, to 2^-25,
  // four products of those to 2^-16, and sums: 2.2e-4. Bicubic: what was summed down has
  // its 9.2e-5, times the sum of the weights across, below 1.5; these are rounded to 2^-25, of
  // numbers below 383; four products of those to 2^-16; sums are below 574 and rounded four times
  // to 2^-15: 3.8e-4.
  static constexpr float kAboveHere = kTaps == 2 ? 0x1p-12F : 0x1p-11F;

  [[nodiscard]] size_t stride() const { return size_t{4} * static_cast<size_t>(wide_.stride()); }

  // In the loops over a row stand copies of members: for all a compiler knows, stores change these.

  // Places and weights of a row, in the order of the scalar code's sums.
  void find(int y) const {
    const Picture from = from_;
    const Motion motion = warp_.motion;
    const WarpScratch memory = memory_;
    const auto& a = motion.a;
    const double at_y = y + 0.5;
    const Doubles b = V::all(a[1] * at_y), e = V::all(a[4] * at_y), h = V::all(a[7] * at_y);
    const Doubles half = V::all(0.5), one = V::all(1.0);
    const Doubles inwards = V::all(WidePicture::kBorder + 1.0 - kTaps / 2);
    const Doubles stride = V::all(static_cast<double>(wide_.stride()));
    const int count = to_.width;
    for (int x = 0; x < count; x += V::kColumns) {
      const Doubles at_x = V::counted(x) + half;
      Doubles from_x = V::all(a[0]) * at_x + b + V::all(a[2]);
      Doubles from_y = V::all(a[3]) * at_x + e + V::all(a[5]);
      if (motion.perspective) {
        const Doubles w = V::all(a[6]) * at_x + h + one;
        from_x = from_x / w;
        from_y = from_y / w;
      }
      const Doubles left = V::floor(from_x - half), top = V::floor(from_y - half);
      const Doubles pixel = (top + inwards) * stride + (left + inwards);
      V::to_words(V::where_inside(from_x, from.width, from_y, from.height, pixel),
                  memory.pixel + x);
      weigh(from_x - half - left, from_y - half - top, memory, x);
    }
  }

  // The weights of the columns from x on, by their fractions.
  static void weigh(Doubles dx, Doubles dy, const WarpScratch& memory, int x) {
    float* const fours = memory.across + ptrdiff_t{4} * x;
    if constexpr (kTaps == 2) {
      const Singles right = V::singles(dx), below = V::singles(dy), one = V::singles(V::all(1.0));
      const Singles rest = one - right, above = one - below;
      V::to_fours(rest * above, right * above, rest * below, right * below, fours);
    } else {
      Doubles across[kTaps], down[kTaps];
      weights_of<kTaps>(dx, V::all(1.0), across);
      weights_of<kTaps>(dy, V::all(1.0), down);
      V::to_fours(V::singles(across[0]), V::singles(across[1]), V::singles(across[2]),
                  V::singles(across[3]), fours);
      for (size_t i = 0; i < 4; ++i) {
        V::to_floats(V::singles(down[i]), memory.down + memory.count * i + x);
      }
    }
  }

  void add_up() const {
    const int width = to_.width;
    const WarpScratch memory = memory_;
    const size_t stride = this->stride();
    const __m128 fill = fill_;
    for (int x = 0; x < width; ++x) {
      float* const sums = memory.sums + ptrdiff_t{4} * x;
      if (memory.pixel[x] < 0) {
        _mm_storeu_ps(sums, fill);
        continue;
      }
      const uint8_t* const from = memory.wide + ptrdiff_t{4} * memory.pixel[x];
      const float* const fours = memory.across + ptrdiff_t{4} * x;
      Floats sum = V::all(0.0F);
      for (int part = 0; part < kParts; ++part) {
        if constexpr (kTaps == 2) {
          const Floats values = V::floats(V::two_rows(from, from + stride, part));
          sum = V::sum(values, V::spread(fours, part), sum);
        } else {
          const auto row = [&](size_t i) {
            return V::floats(V::bytes(from + i * stride + part * V::kLanes));
          };
          const auto weight = [&](size_t i) { return V::all(memory.down[memory.count * i + x]); };
          Floats column = row(0) * weight(0);
          for (size_t i = 1; i < 4; ++i) column = V::sum(row(i), weight(i), column);
          sum = V::sum(column, V::spread(fours, part), sum);
        }
      }
      _mm_storeu_ps(sums, V::quarters(sum));
    }
  }

  // A row's sums to bytes.
  void round(int y) const {
    const int values = 4 * to_.width;
    const WarpScratch memory = memory_;
    for (int j = 0; j < values; j += V::kLanes) {
      const Floats sum = V::floats(memory.sums + j) + V::all(kAboveHere);
      V::truncated(sum, memory.line + j);
      uint32_t doubt = V::close(sum, 2 * kAboveHere) & 0x7777;
      if (values - j < V::kLanes) doubt &= (1U << (values - j)) - 1;
      while (doubt != 0) {
        const int first = __builtin_ctz(doubt) / 4 * 4;
        settle((j + first) / 4, y, (doubt >> first) & 7);
        doubt &= ~(7U << first);
      }
    }
  }

  // The channels of a pixel that are in doubt.
  void settle(int x, int y, uint32_t channels) const {
    channels &= ~alike(wide_.pixels + ptrdiff_t{4} * memory_.pixel[x]);
    if (channels == 0) return;
    const Neighbours<kTaps> around(from_, between_pixels(source_of(warp_.motion, x, y)));
    for (; channels != 0; channels &= channels - 1) {
      const int c = __builtin_ctz(channels);
      memory_.line[4 * x + c] = around.value(c);
    }
  }

  // In which channels all neighbours are equal: their sum is right.
  [[nodiscard]] uint32_t alike(const uint8_t* from) const {
    int32_t pixel = 0;
    std::memcpy(&pixel, from, 4);
    const __m128i all = _mm_set1_epi32(pixel);
    __m128i equal = _mm_cmpeq_epi8(all, all);
    for (size_t i = 0; i < kTaps; ++i) {
      equal = _mm_and_si128(equal, _mm_cmpeq_epi8(all, load128(from + i * stride())));
    }
    const auto mask = static_cast<uint32_t>(_mm_movemask_epi8(equal));
    const uint32_t pairs = mask & (mask >> 4);
    return kTaps == 2 ? pairs : pairs & (pairs >> 8);
  }

  const Picture& from_;
  const Warp& warp_;
  const WarpScratch memory_;
  const WidePicture wide_;
  const __m128 fill_;  // no near whole number, and what is behind the point is cut off
  const Picture to_;
};

template <typename V>
size_t warp_bytes(const Picture& from, const Picture& to) {
  return std::max(WarpScratch::bytes(from, to), Scaled<V>::bytes(to.width));
}

template <typename V>
void warp_filtered(const Picture& from, const Warp& warp, uint8_t* scratch, const Picture& to) {
  const bool alike = from.width == to.width && from.height == to.height;
  if (alike && warp_along<V>(from, warp, scratch, to.pixels)) return;
  if (Scaled<V>::takes(warp, from, to)) return Scaled<V>(from, warp, scratch, to).run();
  if (warp.filter == WarpFilter::kBilinear) return Anywhere<V, 2>(from, warp, scratch, to).run();
  Anywhere<V, 4>(from, warp, scratch, to).run();
}

}  // namespace
}  // namespace fastload
