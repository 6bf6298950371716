// Gaussian blurs: every instruction set against the sums spelled out.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/cpu.h"
#include "check.h"
#include "levels.h"
#include "random.h"
#include "transform/pixels/box_blur_kernels.h"
#include "transform/pixels/gaussian_blur_kernels.h"

namespace {

using fastload::Box;
using fastload::GaussianJob;
using fastload::Picture;
using fastload::RowSink;
using fastload::test::machine_levels;
using fastload::test::Random;
using Bytes = std::vector<uint8_t>;

Bytes pixels_of(Random& random, int width, int height) {
  Bytes pixels(size_t{3} * static_cast<size_t>(width) * static_cast<size_t>(height));
  const bool halves = random.coin();
  for (uint8_t& value : pixels) {
    value = static_cast<uint8_t>(halves ? 255 * random.in(0, 1) : random.in(0, 255));
  }
  pixels.resize(pixels.size() + RowSink::kSlack);
  return pixels;
}

int reflected(int i, int n) {
  while (n > 1 && (i < 0 || i >= n)) i = i < 0 ? -i : 2 * (n - 1) - i;
  return n == 1 ? 0 : i;
}

// The rule as it is written: fused multiply-adds row by row.
Bytes convolved(const Bytes& in, int width, int height, const std::vector<float>& x,
                const std::vector<float>& y) {
  Bytes out(in.size());
  const int across = static_cast<int>(x.size()) / 2;
  const int down = static_cast<int>(y.size()) / 2;
  const auto at = [&](int column, int row, int channel) {
    return (static_cast<size_t>(reflected(row, height)) * static_cast<size_t>(width) +
            static_cast<size_t>(reflected(column, width))) *
               3 +
           static_cast<size_t>(channel);
  };
  for (int row = 0; row < height; ++row) {
    for (int column = 0; column < width; ++column) {
      for (int c = 0; c < 3; ++c) {
        float sum = 0;
        for (int j = -down; j <= down; ++j) {
          for (int i = -across; i <= across; ++i) {
            const float weight =
                y[static_cast<size_t>(j + down)] * x[static_cast<size_t>(i + across)];
            sum = std::fma(static_cast<float>(in[at(column + i, row + j, c)]), weight, sum);
          }
        }
        out[at(column, row, c)] = static_cast<uint8_t>(std::nearbyint(sum));
      }
    }
  }
  return out;
}

std::vector<float> weights(Random& random) {
  const int half = random.in(0, 11);
  const double sigma = 0.2 + random.in(0, 300) * 0.01;
  std::vector<float> taps;
  double sum = 0;
  for (int i = -half; i <= half; ++i) {
    taps.push_back(static_cast<float>(std::exp(-0.5 * (i / sigma) * (i / sigma))));
    sum += static_cast<double>(taps.back());
  }
  for (float& tap : taps) tap = static_cast<float>(static_cast<double>(tap) / sum);
  return taps;
}

TEST(every_level_convolves_by_the_rule) {
  Random random(7);
  for (int turn = 0; turn < 60; ++turn) {
    const int width = random.in(1, 50);
    const int height = random.in(1, 30);
    const Bytes in = pixels_of(random, width, height);
    const std::vector<float> x = weights(random);
    const std::vector<float> y = weights(random);
    Bytes wanted = convolved(in, width, height, x, y);
    wanted.resize(in.size() - RowSink::kSlack);
    for (const auto level : machine_levels()) {
      Bytes source = in;
      Bytes out(in.size());
      GaussianJob job;
      const int across = static_cast<int>(x.size()) / 2;
      const int down = static_cast<int>(y.size()) / 2;
      job.x = {x.data(), across, across};
      job.y = {y.data(), down, down};
      job.in = Picture{source.data(), width, height};
      job.out = out.data();
      std::vector<float> scratch(fastload::gaussian_blur_floats(job));
      std::vector<const uint8_t*> rows(fastload::gaussian_blur_rows(job));
      job.scratch = scratch.data();
      job.rows = rows.data();
      FASTLOAD_KERNEL_AT(level, gaussian_blur)(job);
      out.resize(wanted.size());
      CHECK(out == wanted);
    }
  }
}

// Three times along lines of `length` values that lie `step` apart.
void boxed(Bytes& pixels, size_t first, size_t step, int length, const Box& box) {
  for (int pass = 0; pass < fastload::kBoxPasses; ++pass) {
    const Bytes before = pixels;
    const auto at = [&](int i) {
      return first + step * static_cast<size_t>(std::clamp(i, 0, length - 1));
    };
    for (int i = 0; i < length; ++i) {
      uint32_t sum = 0;
      for (int k = -box.reach; k <= box.reach; ++k) sum += before[at(i + k)];
      const uint32_t far =
          uint32_t{before[at(i - box.reach - 1)]} + before[at(i + box.reach + 1)];
      pixels[at(i)] = static_cast<uint8_t>((sum * box.inner + far * box.outer + (1U << 23)) >> 24);
    }
  }
}

TEST(every_level_blurs_by_boxes) {
  Random random(8);
  for (int turn = 0; turn < 100; ++turn) {
    const int width = random.in(1, 60);
    const int height = random.in(1, 40);
    const Bytes in = pixels_of(random, width, height);
    Box box;
    box.reach = random.coin() ? random.in(0, 30) : random.in(60, 70);
    box.inner = static_cast<uint32_t>((1 << 24) / (2 * box.reach + 1 + random.in(0, 9) * 0.2));
    box.outer = ((1U << 24) - (2 * static_cast<uint32_t>(box.reach) + 1) * box.inner) / 2;
    Bytes wanted = in;
    const size_t row = size_t{3} * static_cast<size_t>(width);
    for (size_t i = 0; i < row * static_cast<size_t>(height); i += i % row == 2 ? row - 2 : 1) {
      boxed(wanted, i, 3, width, box);
    }
    for (size_t i = 0; i < row; ++i) boxed(wanted, i, row, height, box);
    wanted.resize(row * static_cast<size_t>(height));
    for (const auto level : machine_levels()) {
      Bytes pixels = in;
      Bytes scratch(fastload::box_blur_scratch(box, width, height));
      const Picture picture{pixels.data(), width, height};
      FASTLOAD_KERNEL_AT(level, box_blur)(box, picture, scratch.data());
      pixels.resize(wanted.size());
      CHECK(pixels == wanted);
    }
  }
}

}  // namespace
