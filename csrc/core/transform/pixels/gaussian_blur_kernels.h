// The loops of gaussian_blur; all levels give the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/kernels.h"
#include "transform/pixels/operation.h"

namespace fastload {

// Rows that are blurred together, of which each pixel is converted once; and vectors of a row.
inline constexpr int kGaussianRows = 4;
inline constexpr int kGaussianVectors = 4;
// Pixels that are computed again together: their sums do not wait for each other.
inline constexpr int kGaussianAgain = 8;

// Weights of one direction: `taps[half + i]` for a pixel i away, at most `half`.
struct GaussianTaps {
  const float* taps = nullptr;
  int half = 0;
  int reach = 0;  // beyond, weights are too small for the estimate
};

struct GaussianJob {
  GaussianTaps x;
  GaussianTaps y;
  Picture in;
  uint8_t* out = nullptr;          // as many bytes as `in`, with slack
  float* scratch = nullptr;        // gaussian_blur_floats() of them
  const uint8_t** rows = nullptr;  // gaussian_blur_rows() of them
};

// Values of a row with its surroundings, before the pass along it.
inline size_t gaussian_margin(const GaussianJob& job) {
  return (3 * static_cast<size_t>(job.x.half) + 15) / 16 * 16;
}
inline size_t gaussian_line(const GaussianJob& job) {
  const size_t values = size_t{3} * static_cast<size_t>(job.in.width);
  return 2 * gaussian_margin(job) + (values + 63) / 64 * 64;
}
// Values around a pixel in a row that is computed again.
inline size_t gaussian_window(const GaussianJob& job) {
  return (3 * (2 * static_cast<size_t>(job.x.half) + 1) + 31) / 16 * 16;
}
inline size_t gaussian_blur_rows(const GaussianJob& job) {
  return static_cast<size_t>(job.in.height) + 2 * static_cast<size_t>(job.y.half) + kGaussianRows;
}
inline size_t gaussian_blur_floats(const GaussianJob& job) {
  const size_t taps = 2 * static_cast<size_t>(job.y.half) + 1 + 2 * (kGaussianRows - 1);
  return kGaussianRows * gaussian_line(job) + kGaussianAgain * gaussian_window(job) +
         (taps + 15) / 16 * 16;
}

FASTLOAD_KERNEL(void gaussian_blur(const GaussianJob& job));

}  // namespace fastload
