// Bilinear and bicubic warps, in steps that all vector kernels share. V names the instruction set:
//   V::kColumns             columns whose places are found at once
//   V::places(row, x, at)   of the columns from x on: their places in `at`
//   V::bilinear(from, below, dx, dy)   the pixel, as four bytes, from the one at `from`
//   V::bicubic(from, stride, dx, dy)   likewise
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "transform/pixels/warp_along_simd.h"
#include "transform/pixels/warp_kernels.h"

namespace fastload {
namespace {  // each file has its own, compiled for its instruction set

// A picture of four bytes a pixel, whose outermost pixels are repeated kBorder times on each side:
// what a kernel reads is always there.
struct WidePicture {
  static constexpr int kBorder = 2;
  static constexpr int kMore = 16;  // pixels of a row, which vector stores may write

  const uint8_t* pixels;                                            // with the border
  int width, height;                                                // without
  [[nodiscard]] int stride() const { return width + 2 * kBorder; }  // pixels
};

// Where the pixels of a row come from.
struct RowPlaces {
  int32_t* pixel;  // counted in the wide picture; -1: outside
  double* dx;
  double* dy;
};

// What is the same for a row, in the order of the scalar code's sums.
struct RowMotion {
  double ax, bx, cx;  // X = (ax * x + bx) + cx
  double ay, by, cy;
  double aw, bw;  // perspective: both divided by (aw * x + bw) + 1
  bool perspective;
  int width, height, stride;
};

inline RowMotion motion_of_row(const Motion& motion, const WidePicture& from, int row) {
  const auto& a = motion.a;
  const double y = row + 0.5;
  return {a[0],     a[1] * y,           a[2],       a[3],        a[4] * y,     a[5], a[6],
          a[7] * y, motion.perspective, from.width, from.height, from.stride()};
}

inline size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

struct WarpScratch {
  static size_t wide_bytes(int width, int height) {
    const size_t stride = static_cast<size_t>(width) + 2 * WidePicture::kBorder;
    return aligned(4 * (stride * (static_cast<size_t>(height) + 2 * WidePicture::kBorder) +
                        WidePicture::kMore));
  }
  static size_t row_count(int width) {
    return aligned(static_cast<size_t>(width)) + WidePicture::kMore;
  }
  static size_t bytes(int width, int height) {
    return std::max(AlongScratch::bytes(width),
                    wide_bytes(width, height) + row_count(width) * (2 * sizeof(double) + 2 * 4));
  }
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

template <typename V, bool kCubic>
void warp_rows(const WidePicture& from, const Warp& warp, const RowPlaces& places, uint32_t* line,
               uint8_t* to) {
  const size_t stride = size_t{4} * static_cast<size_t>(from.stride());
  uint32_t fill = 0;
  std::memcpy(&fill, warp.fill.data(), 3);
  for (int y = 0; y < from.height; ++y) {
    const RowMotion motion = motion_of_row(warp.motion, from, y);
    for (int x = 0; x < from.width; x += V::kColumns) V::places(motion, x, places);
    for (int x = 0; x < from.width; ++x) {
      if (places.pixel[x] < 0) {
        line[x] = fill;
        continue;
      }
      const uint8_t* const pixel = from.pixels + size_t{4} * static_cast<size_t>(places.pixel[x]);
      if constexpr (kCubic) {
        line[x] = V::bicubic(pixel - stride - 4, stride, places.dx[x], places.dy[x]);
      } else {
        line[x] = V::bilinear(pixel, pixel + stride, places.dx[x], places.dy[x]);
      }
    }
    V::narrow(line, from.width, to + size_t{3} * static_cast<size_t>(from.width) * y);
  }
}

template <typename V>
void warp_filtered(const Picture& from, const Warp& warp, uint8_t* scratch, uint8_t* to) {
  if (warp_along<V>(from, warp, scratch, to)) return;
  const WidePicture wide = widened<V>(from, scratch);
  const size_t count = WarpScratch::row_count(from.width);
  uint8_t* at = scratch + WarpScratch::wide_bytes(from.width, from.height);
  const auto take = [&](size_t bytes) {
    uint8_t* const taken = at;
    at += count * bytes;
    return taken;
  };
  auto* const dx = reinterpret_cast<double*>(take(sizeof(double)));
  auto* const dy = reinterpret_cast<double*>(take(sizeof(double)));
  auto* const pixel = reinterpret_cast<int32_t*>(take(4));
  auto* const line = reinterpret_cast<uint32_t*>(take(4));
  const RowPlaces places{pixel, dx, dy};
  if (warp.filter == WarpFilter::kBilinear) {
    warp_rows<V, false>(wide, warp, places, line, to);
  } else {
    warp_rows<V, true>(wide, warp, places, line, to);
  }
}

}  // namespace
}  // namespace fastload
