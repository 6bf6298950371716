// Kernels of operations that look at a pixel or its neighbours, once for each instruction set; all
// give the same bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/kernels.h"

namespace fastload {

// What becomes of each value of a channel.
using ByteTable = std::array<uint8_t, 256>;

// `rgb` is interleaved, `pixels` or `bytes` long, and changed in place.
struct PointKernels {
  void (*look_up)(uint8_t* rgb, size_t bytes, const ByteTable& table);
  // A table for each channel.
  void (*look_up_each)(uint8_t* rgb, size_t pixels, const ByteTable* tables);
  // The channels order[0], order[1], order[2] as red, green and blue.
  void (*permute)(uint8_t* rgb, size_t pixels, const uint8_t* order);
  // Least and greatest value of each channel.
  void (*extremes)(const uint8_t* rgb, size_t pixels, uint8_t* least, uint8_t* greatest);
  // The luma of convert("L") in all channels; its sum; channels moved away from it.
  void (*grayscale)(uint8_t* rgb, size_t pixels);
  uint64_t (*luma_sum)(const uint8_t* rgb, size_t pixels);
  void (*saturation)(uint8_t* rgb, size_t pixels, float factor);
  // Hue, in 256ths of a turn, moved by `shift`.
  void (*hue)(uint8_t* rgb, size_t pixels, uint8_t shift);
  // All but the outermost rows and columns, blended with their mean by Pillow's filter SMOOTH.
  // `scratch` holds kSharpenRows rows and kSharpenSlack bytes; past the picture is slack to read.
  void (*sharpen)(uint8_t* rgb, size_t row_bytes, size_t rows, float factor, uint8_t* scratch);
  static constexpr size_t kSharpenRows = 4;
  static constexpr size_t kSharpenSlack = 1024;
};

FASTLOAD_KERNEL(extern const PointKernels kPointKernels);
inline const PointKernels& point_kernels(SimdLevel level) {
  return FASTLOAD_KERNEL_AT(level, kPointKernels);
}
inline const PointKernels& point_kernels() { return point_kernels(simd_level()); }

// Pillow's blend (libImaging/Blend.c): `from` moved towards `to` by `factor`, or beyond it. Product
// and sum are rounded apart. What is not a number is 0, as in the vector code.
inline uint8_t blended(int from, int to, float factor) {
  const float value = static_cast<float>(from) + factor * static_cast<float>(to - from);
  const float positive = value > 0.0f ? value : 0.0f;
  return static_cast<uint8_t>(positive < 255.0f ? positive : 255.0f);
}

// blended() from one value.
inline ByteTable blend_table(int from, float factor) {
  ByteTable table;
  for (int i = 0; i < 256; ++i) table[static_cast<size_t>(i)] = blended(from, i, factor);
  return table;
}

// Pillow's convert("L"): libImaging/Convert.c, ITU-R 601-2 in 16-bit fixed point, rounded.
inline uint8_t luma_of(uint32_t red, uint32_t green, uint32_t blue) {
  return static_cast<uint8_t>((19595u * red + 38470u * green + 7471u * blue + 0x8000u) >> 16);
}

}  // namespace fastload
