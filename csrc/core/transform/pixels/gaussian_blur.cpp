// torchvision's GaussianBlur of a picture: a convolution with float weights, the picture reflected
// at its edges. Given equal weights, pixels are those of torch's convolution; the weights differ
// from torch's by a rounding of exp, for one sigma in ten.
#include <cmath>

#include "transform/pixels/gaussian_blur_kernels.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"kernel x", "kernel y", "sigma"};

// As torch sums a row of floats: four vectors are added to each other by turns.
template <int kLanes>
void sum_vectors(const float* values, int vectors, float* sums) {
  float parts[4][kLanes] = {};
  const int turns = vectors / 4 * 4;
  for (int i = 0; i < vectors; ++i) {
    float* part = parts[i < turns ? i % 4 : 0];
    for (int lane = 0; lane < kLanes; ++lane) part[lane] += values[i * kLanes + lane];
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    sums[lane] = parts[0][lane];
    for (int part = 1; part < 4; ++part) sums[lane] += parts[part][lane];
  }
}

// torch.sum of up to 512 floats: vectors of eight; the rest first, then the eight one by one.
float torch_sum(const float* values, int count) {
  constexpr int kLanes = 8;
  float sum = 0.0F;
  if (count < kLanes) {
    sum_vectors<1>(values, count, &sum);
    return sum;
  }
  float lanes[kLanes];
  sum_vectors<kLanes>(values, count / kLanes, lanes);
  for (int i = count / kLanes * kLanes; i < count; ++i) sum += values[i];
  for (const float lane : lanes) sum += lane;
  return sum;
}

// Fills 2 * half + 1 weights. exp is rounded once, from double.
GaussianTaps fill(float* taps, int half, float sigma) {
  for (int i = -half; i <= half; ++i) {
    const float x = static_cast<float>(i) / sigma;
    taps[half + i] = static_cast<float>(std::exp(static_cast<double>(-0.5F * (x * x))));
  }
  const float sum = torch_sum(taps, 2 * half + 1);
  for (int i = 0; i <= 2 * half; ++i) taps[i] /= sum;
  constexpr float kNothing = 1e-8F;
  int reach = half;
  while (reach > 0 && taps[half + reach] < kNothing) --reach;
  return {taps, half, reach};
}

void apply(std::span<const double> numbers, const PixelDraws&, Canvas& canvas) {
  const auto sigma = static_cast<float>(numbers[2]);
  if (sigma <= 0.0F) return;
  GaussianJob job;
  job.in = canvas.picture();
  job.x.half = static_cast<int>(numbers[0]) / 2;
  job.y.half = static_cast<int>(numbers[1]) / 2;
  const size_t floats = gaussian_blur_floats(job);
  const size_t x_taps = 2 * static_cast<size_t>(job.x.half) + 1;
  const size_t y_taps = 2 * static_cast<size_t>(job.y.half) + 1;
  const size_t rows = gaussian_blur_rows(job) * sizeof(const uint8_t*);
  uint8_t* scratch = canvas.scratch(rows + (floats + x_taps + y_taps) * sizeof(float));
  job.rows = reinterpret_cast<const uint8_t**>(scratch);
  job.scratch = reinterpret_cast<float*>(scratch + rows);
  job.x = fill(job.scratch + floats, job.x.half, sigma);
  job.y = fill(job.scratch + floats + x_taps, job.y.half, sigma);
  job.out = canvas.spare();
  FASTLOAD_KERNEL_AT(simd_level(), gaussian_blur)(job);
  canvas.swap();
}

}  // namespace

constinit const PixelOperation kGaussianBlur{"gaussian_blur", 45, kParameters, apply};

}  // namespace fastload
