// transform/pixels/pointwise: the kernels of each instruction set against plain ones. What these do
// is compared with Pillow in tests/transform/.
#include <algorithm>
#include <vector>

#include "base/row_sink.h"
#include "check.h"
#include "levels.h"
#include "plain_pointwise.h"
#include "random.h"
#include "transform/pixels/pointwise.h"

namespace {

using fastload::blended;
using fastload::ByteTable;
using fastload::point_kernels;
using fastload::PointKernels;
using fastload::SimdLevel;
using fastload::test::kPlainPointKernels;
using fastload::test::machine_levels;
using fastload::test::Random;
using Bytes = std::vector<uint8_t>;

// Factors that recipes draw, and those whose products are just below whole numbers: 1.3f is less
// than 1.3. Beyond what tables hold, too.
std::vector<float> factors(Random& random) {
  std::vector<float> all = {0.0f, 1.0f, 2.0f, -0.5f, -1.0f, 999.0f, 1e6f, 1e30f};
  for (int i = 1; i < 40; ++i) all.push_back(static_cast<float>(0.1 * i));
  for (int i = 0; i <= 30; ++i) all.push_back(static_cast<float>(1.0 + 0.033 * i));
  for (int i = 0; i < 40; ++i) all.push_back(static_cast<float>(random.in(0, 3'000'000)) / 1e6f);
  return all;
}

// Sizes around those of vectors and blocks.
size_t random_pixels(Random& random) {
  const int around[] = {1, 16, 32, 64, 256, 512, 700};
  return static_cast<size_t>(std::max(1, around[random.in(0, 6)] + random.in(-2, 2)));
}

ByteTable random_table(Random& random) {
  ByteTable table;
  for (uint8_t& value : table) value = random.sample();
  return table;
}

// The picture and its slack, in memory that ends there.
Bytes with_slack(Bytes pixels) {
  pixels.resize(pixels.size() + fastload::RowSink::kSlack);
  pixels.shrink_to_fit();
  return pixels;
}

// All levels do to random pictures what the plain kernels do.
template <typename Work>
void check_levels(uint32_t seed, int rounds, const Work& work) {
  Random random(seed);
  for (int round = 0; round < rounds; ++round) {
    const size_t pixels = random_pixels(random);
    const Bytes before = with_slack(random.samples(3 * pixels));
    const uint32_t chosen = static_cast<uint32_t>(random.in(0, 1 << 30));
    Bytes wanted = before;
    Random again(chosen);
    work(kPlainPointKernels, wanted, pixels, again);
    for (const SimdLevel level : machine_levels()) {
      Bytes found = before;
      Random same(chosen);
      work(point_kernels(level), found, pixels, same);
      CHECK(std::equal(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(3 * pixels),
                       found.begin()));
    }
  }
}

TEST(look_up) {
  check_levels(1, 200, [](const PointKernels& kernels, Bytes& rgb, size_t pixels, Random& random) {
    kernels.look_up(rgb.data(), 3 * pixels, random_table(random));
  });
}

TEST(look_up_each) {
  check_levels(2, 200, [](const PointKernels& kernels, Bytes& rgb, size_t pixels, Random& random) {
    const ByteTable tables[] = {random_table(random), random_table(random), random_table(random)};
    kernels.look_up_each(rgb.data(), pixels, tables);
  });
}

TEST(permute) {
  check_levels(10, 200, [](const PointKernels& kernels, Bytes& rgb, size_t pixels, Random& random) {
    uint8_t order[] = {0, 1, 2};
    std::swap(order[0], order[random.in(0, 2)]);
    std::swap(order[1], order[random.in(1, 2)]);
    kernels.permute(rgb.data(), pixels, order);
  });
}

TEST(grayscale) {
  check_levels(3, 200, [](const PointKernels& kernels, Bytes& rgb, size_t pixels, Random&) {
    kernels.grayscale(rgb.data(), pixels);
  });
}

TEST(hue) {
  check_levels(4, 400, [](const PointKernels& kernels, Bytes& rgb, size_t pixels, Random& random) {
    kernels.hue(rgb.data(), pixels, static_cast<uint8_t>(random.in(0, 255)));
  });
}

TEST(saturation) {
  Random random(5);
  for (const float factor : factors(random)) {
    check_levels(6, 8, [&](const PointKernels& kernels, Bytes& rgb, size_t pixels, Random&) {
      kernels.saturation(rgb.data(), pixels, factor);
    });
  }
}

TEST(sums_and_extremes) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    const size_t pixels = random_pixels(random);
    Bytes rgb = random.samples(3 * pixels);
    for (uint8_t& value : rgb)
      value = static_cast<uint8_t>(value % (round % 2 ? 256 : 90) + round % 100);
    uint64_t sum = 0;
    uint8_t least[] = {255, 255, 255};
    uint8_t greatest[] = {0, 0, 0};
    for (size_t i = 0; i < rgb.size(); i += 3) {
      sum += fastload::luma_of(rgb[i], rgb[i + 1], rgb[i + 2]);
      for (size_t c = 0; c < 3; ++c) {
        least[c] = std::min(least[c], rgb[i + c]);
        greatest[c] = std::max(greatest[c], rgb[i + c]);
      }
    }
    rgb = with_slack(rgb);
    for (const SimdLevel level : machine_levels()) {
      uint8_t low[3];
      uint8_t high[3];
      point_kernels(level).extremes(rgb.data(), pixels, low, high);
      CHECK(std::equal(low, low + 3, least) && std::equal(high, high + 3, greatest));
      CHECK_EQ(point_kernels(level).luma_sum(rgb.data(), pixels), sum);
    }
  }
}

TEST(sharpness) {
  Random random(8);
  for (const float factor : factors(random)) {
    const size_t width = static_cast<size_t>(random.in(3, 90));
    const size_t height = static_cast<size_t>(random.in(3, 9));
    const Bytes before = with_slack(random.samples(3 * width * height));
    const auto scratch = [&] {  // with anything in it
      return random.samples(PointKernels::kSharpenRows * 3 * width +
                            PointKernels::kSharpenSlack);
    };
    Bytes wanted = before;
    kPlainPointKernels.sharpen(wanted.data(), 3 * width, height, factor, scratch().data());
    for (const SimdLevel level : machine_levels()) {
      Bytes found = before;
      point_kernels(level).sharpen(found.data(), 3 * width, height, factor, scratch().data());
      CHECK(found == wanted);
    }
  }
}

// Blue weighs least: (gray, gray, blue) has a luma near gray, whatever its blue.
TEST(all_steps_of_a_blend) {
  Random random(9);
  for (const float factor : factors(random)) {
    for (int blue = 0; blue < 256; blue += 5) {
      Bytes rgb;
      for (int gray = 0; gray < 256; ++gray) {
        for (int channel = 0; channel < 2; ++channel) rgb.push_back(static_cast<uint8_t>(gray));
        rgb.push_back(static_cast<uint8_t>(blue));
      }
      const Bytes before = with_slack(rgb);
      for (const SimdLevel level : machine_levels()) {
        Bytes found = before;
        point_kernels(level).saturation(found.data(), 256, factor);
        for (size_t i = 0; i < rgb.size(); ++i) {
          const uint8_t* pixel = &rgb[i / 3 * 3];
          const uint8_t luma = fastload::luma_of(pixel[0], pixel[1], pixel[2]);
          CHECK_EQ(found[i], blended(luma, rgb[i], factor));
        }
      }
    }
  }
}

}  // namespace
