// CMYK to RGB as Pillow computes it, so that both give the same training pixels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastload {

// Converts rows of Adobe-style (inverted) CMYK to RGB in place; each row keeps its place and
// stride. Pillow always takes a 4-component JPEG for inverted (JpegImagePlugin's "CMYK;I") and then
// computes R = max(0, K' - C * K' / 255) with K' = 255 - K (Convert.c, cmyk2rgb), the division
// rounded.
inline void cmyk_rows_to_rgb(uint8_t* rows, size_t stride, size_t width, int count) {
  for (int y = 0; y < count; ++y) {
    const uint8_t* from = rows + static_cast<size_t>(y) * stride;
    uint8_t* to = rows + static_cast<size_t>(y) * stride;
    for (size_t x = 0; x < width; ++x, from += 4, to += 3) {
      const uint32_t white = from[3];
      for (int c = 0; c < 3; ++c) {
        const uint32_t product = (255u - from[c]) * white + 128;
        // At most `white`, so the difference needs no clipping.
        to[c] = static_cast<uint8_t>(white - ((product + (product >> 8)) >> 8));
      }
    }
  }
}

}  // namespace fastload
