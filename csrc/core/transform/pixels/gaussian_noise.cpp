// torchvision's gaussian_noise of uint8 pictures: to each value a normal number in units of 255 is
// added, without what is behind its point.
//
// DESIGN. Only whole numbers are added, so these are drawn, with the probabilities that they have,
// from a word each, which costs less than a normal number.
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numbers>
#include <vector>

#include "base/per_thread.h"
#include "transform/pixels/noise_kernels.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"mean", "sigma", "clip"};

struct Normal {
  double mean;
  double sigma;

  // The probability of [low, high); both tails are exact far out.
  [[nodiscard]] double mass(double low, double high) const {
    if (sigma == 0.0) return low <= mean && mean < high ? 1.0 : 0.0;
    const auto beyond = [&](double x) { return 0.5 * std::erfc(x / sigma / std::numbers::sqrt2); };
    return low >= mean ? beyond(low - mean) - beyond(high - mean)
                       : beyond(mean - high) - beyond(mean - low);
  }
  // That of what is `number` without its fraction.
  [[nodiscard]] double whole(int number) const {
    const double at = number;
    return mass(number <= 0 ? std::nextafter(at - 1.0, 0.0) : at,
                number >= 0 ? at + 1.0 : std::nextafter(at, 0.0));
  }
};

using Shares = std::array<double, NoiseTable::kCells>;

// Of -255 to 255: what is added to a value that ends at 0 and at 255 need not be more.
Shares clipped_shares(const Normal& normal) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Shares shares = {};
  shares.front() = normal.mass(-kInfinity, std::nextafter(-255.0, 0.0));
  for (int number = -254; number < 255; ++number) {
    shares[static_cast<size_t>(number + 255)] = normal.whole(number);
  }
  shares[510] = normal.mass(255.0, kInfinity);
  return shares;
}

// Of 0 to 255: sums are taken modulo 256.
Shares wrapped_shares(const Normal& normal) {
  Shares shares = {};
  const double reach = 9.0 * normal.sigma + 1.0;
  const int last = static_cast<int>(normal.mean + reach);
  for (int number = static_cast<int>(normal.mean - reach); number <= last; ++number) {
    shares[static_cast<size_t>(number & 255)] += normal.whole(number);
  }
  return shares;
}

// Vose's way to alias tables: cells with less than an even share are filled up by those with more.
std::array<uint32_t, NoiseTable::kCells> cells_of(Shares shares) {
  std::array<uint32_t, NoiseTable::kCells> cells;
  std::vector<size_t> small;
  std::vector<size_t> large;
  for (size_t i = 0; i < shares.size(); ++i) {
    shares[i] *= static_cast<double>(shares.size());
    (shares[i] < 1.0 ? small : large).push_back(i);
    cells[i] = static_cast<uint32_t>(i);  // its own alias: what is left over is 1 but for rounding
  }
  while (!small.empty() && !large.empty()) {
    const size_t less = small.back();
    const size_t more = large.back();
    small.pop_back();
    const auto own = static_cast<uint32_t>(shares[less] * NoiseTable::kUnit);
    cells[less] = own << 9 | static_cast<uint32_t>(more);
    shares[more] -= 1.0 - shares[less];
    if (shares[more] >= 1.0) continue;
    large.pop_back();
    small.push_back(more);
  }
  return cells;
}

// A thread's table of its last numbers, which are the same for all samples of a transform.
const NoiseTable& table_of(double mean, double sigma, bool clip) {
  struct Kept {
    Normal normal = {0.0, -1.0};
    NoiseTable table;
  };
  Kept& kept = per_thread<Kept>();
  const Normal normal{mean * 255.0, sigma * 255.0};
  if (kept.normal.mean != normal.mean || kept.normal.sigma != normal.sigma ||
      kept.table.wraps == clip) {
    kept.table.cells = cells_of(clip ? clipped_shares(normal) : wrapped_shares(normal));
    kept.table.offset = clip ? 255 : 0;
    kept.table.wraps = !clip;
    kept.normal = normal;
  }
  return kept.table;
}

void apply(std::span<const double> numbers, const PixelDraws& draws, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  const NoiseTable& table = table_of(numbers[0], numbers[1], numbers[2] != 0.0);
  FASTLOAD_KERNEL_AT(simd_level(), add_noise)(picture.pixels, picture.bytes(), draws.stream(), table);
}

}  // namespace

constinit const PixelOperation kGaussianNoise{"gaussian_noise", 13, kParameters, apply};

}  // namespace fastload
