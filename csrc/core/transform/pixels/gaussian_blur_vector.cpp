// torchvision's Gaussian blur.
//
// The rule: a pixel is the sum of its neighbours' products with the outer product of both
// directions' weights, added by fused multiply-adds row by row, left to right; rounded to the
// nearest even. That is a product for each weight, 529 for 23 x 23. So each pixel is estimated, by
// columns and then by rows, which is off by some 1e-5, and those that lie so near the middle of two
// numbers that the order of the sum may decide are computed again by the rule.
#include <cmath>
#include <cstring>

#include "transform/pixels/gaussian_blur_kernels.h"
// Behind the others:
#include "base/highway.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

// How near .5 a part is for which the order of the sum may decide. Not proven: 1e-5 were the
// largest differences of 63 million values.
constexpr float kDoubt = 1e-3F;

class GaussianBlur {
 public:
  explicit GaussianBlur(const GaussianJob& job)
      : job_(job),
        values_(3 * static_cast<ptrdiff_t>(job.in.width)),
        margin_(static_cast<ptrdiff_t>(gaussian_margin(job))),
        line_(static_cast<ptrdiff_t>(gaussian_line(job))),
        window_(static_cast<ptrdiff_t>(gaussian_window(job))),
        lines_(job.scratch),
        windows_(lines_ + kRows * line_),
        columns_(windows_ + kAgain * window_),
        rows_(job.rows + job.y.half) {}

  void run() {
    std::memset(lines_, 0, gaussian_blur_floats(job_) * sizeof(float));
    for (int y = -job_.y.half; y < job_.in.height + job_.y.half + kRows; ++y) {
      rows_[y] = job_.in.pixels + values_ * reflected(y, job_.in.height);
    }
    const int reach = job_.y.reach;
    // With zeros around, so that each row in work takes part in each row that is made.
    std::memcpy(columns_ + kRows - 1, job_.y.taps + job_.y.half - reach,
                (2 * static_cast<size_t>(reach) + 1) * sizeof(float));
    for (int y = 0; y < job_.in.height; y += kRows) {
      const int count = job_.in.height - y < kRows ? job_.in.height - y : kRows;
      down(y);
      for (int r = 0; r < count; ++r) {
        surround(lines_ + r * line_ + margin_);
        along(lines_ + r * line_ + margin_, y + r);
      }
    }
    again();
  }

 private:
  using Float = hn::Vec<hn::ScalableTag<float>>;
  using Floats = hn::ScalableTag<float>;
  static constexpr Floats kFloats{};
  static constexpr int kLanes = static_cast<int>(hn::MaxLanes(kFloats));
  static constexpr int kRows = kGaussianRows;
  static constexpr int kAgain = kGaussianAgain;

  static Float widened(const uint8_t* from) {
    constexpr hn::RebindToSigned<Floats> kWhole{};
    constexpr hn::Rebind<uint8_t, Floats> kBytes{};
    return hn::ConvertTo(kFloats, hn::PromoteTo(kWhole, hn::LoadU(kBytes, from)));
  }

  // Where torch's reflection has pixel i of n; for pictures smaller than the kernel, which torch
  // refuses, it goes on to and fro.
  static int reflected(int i, int n) {
    if (n == 1) return 0;
    const int period = 2 * (n - 1);
    i %= period;
    if (i < 0) i += period;
    return i < n ? i : period - i;
  }

  // kRows rows from `y` on, blurred along columns, into lines_.
  void down(int y) {
    const int reach = job_.y.reach;
    const int inputs = 2 * reach + kRows;
    const uint8_t* const* from = rows_ + y - reach;
    for (ptrdiff_t i = 0; i < values_; i += kLanes) {
      Float sums[kRows];
      for (int r = 0; r < kRows; ++r) sums[r] = hn::Zero(kFloats);
      for (int t = 0; t < inputs; ++t) {
        const Float x = widened(from[t] + i);
        for (int r = 0; r < kRows; ++r) {
          sums[r] = hn::MulAdd(x, hn::Set(kFloats, columns_[t - r + kRows - 1]), sums[r]);
        }
      }
      for (int r = 0; r < kRows; ++r) {
        hn::StoreU(sums[r], kFloats, lines_ + r * line_ + margin_ + i);
      }
    }
  }

  void surround(float* line) const {
    for (int i = 1; i <= job_.x.reach; ++i) {
      const int left = reflected(-i, job_.in.width);
      const int right = reflected(job_.in.width - 1 + i, job_.in.width);
      std::memcpy(line - 3 * i, line + 3 * left, 3 * sizeof(float));
      std::memcpy(line + values_ + 3 * (i - 1), line + 3 * right, 3 * sizeof(float));
    }
  }

  // Row `y` of the output from a line.
  void along(const float* line, int y) {
    constexpr ptrdiff_t kStep = ptrdiff_t{kLanes} * kGaussianVectors;
    const int reach = job_.x.reach;
    const float* taps = job_.x.taps + job_.x.half;
    for (ptrdiff_t i = 0; i < values_; i += kStep) {
      Float sums[kGaussianVectors];
      for (Float& sum : sums) sum = hn::Zero(kFloats);
      for (int t = -reach; t <= reach; ++t) {
        const Float tap = hn::Set(kFloats, taps[t]);
        const float* from = line + i + 3 * t;
        for (int v = 0; v < kGaussianVectors; ++v) {
          sums[v] = hn::MulAdd(hn::LoadU(kFloats, from + v * kLanes), tap, sums[v]);
        }
      }
      for (int v = 0; v < kGaussianVectors; ++v) {
        const ptrdiff_t at = i + v * kLanes;
        round(sums[v], job_.out + y * values_ + at, at, y);
      }
    }
  }

  // Stores bytes and notes those that are in doubt.
  void round(Float sums, uint8_t* to, ptrdiff_t at, int y) {
    // 2^23 leaves no room for parts: the sum is rounded to even, and its lowest byte is the number.
    const Float shift = hn::Set(kFloats, 0x1p23F);
    const Float shifted = hn::Add(sums, shift);
    const hn::RebindToUnsigned<Floats> wide;
    const auto whole = hn::And(hn::BitCast(wide, shifted), hn::Set(wide, 0xFF));
    hn::StoreU(hn::U8FromU32(whole), hn::Rebind<uint8_t, Floats>(), to);
    const Float part = hn::Abs(hn::Sub(sums, hn::Sub(shifted, shift)));
    const auto doubtful = hn::Gt(part, hn::Set(kFloats, 0.5F - kDoubt));
    if (hn::AllFalse(kFloats, doubtful)) return;
    uint8_t bytes[8] = {};
    hn::StoreMaskBits(kFloats, doubtful, bytes);
    for (uint32_t bits = bytes[0] | bytes[1] << 8; bits != 0; bits &= bits - 1) {
      const ptrdiff_t value = at + __builtin_ctz(bits);
      if (value < values_) note(value, y);
    }
  }

  void note(ptrdiff_t value, int y) {
    noted_[count_++] = {value, y};
    if (count_ == kAgain) again();
  }

  // By the rule, those that are noted.
  void again() {
    const int taps = 2 * job_.x.half + 1;
    float sums[kAgain] = {};
    for (int t = 0; t <= 2 * job_.y.half; ++t) {
      for (int n = 0; n < count_; ++n) widen(noted_[n], t - job_.y.half, windows_ + n * window_);
      const float weight = job_.y.taps[t];
      for (int k = 0; k < taps; ++k) {
        const float product = weight * job_.x.taps[k];
        const float* at = windows_ + static_cast<ptrdiff_t>(3) * k;
        for (int n = 0; n < kAgain; ++n) sums[n] = std::fma(at[n * window_], product, sums[n]);
      }
    }
    for (int n = 0; n < count_; ++n) {
      job_.out[noted_[n].y * values_ + noted_[n].value] =
          static_cast<uint8_t>(std::nearbyint(sums[n]));
    }
    count_ = 0;
  }

  struct Noted {
    ptrdiff_t value = 0;
    int y = 0;
  };

  // Every third of `to`: the neighbours of a value in the row that is `rows` below it.
  void widen(const Noted& noted, int rows, float* to) const {
    const int half = job_.x.half;
    const uint8_t* from = rows_[noted.y + rows];
    const ptrdiff_t first = noted.value - static_cast<ptrdiff_t>(3) * half;
    const ptrdiff_t count = 3 * (2 * static_cast<ptrdiff_t>(half) + 1);
    if (first >= 0 && first + count - 3 < values_) {
      for (ptrdiff_t i = 0; i < count; i += kLanes) {
        hn::StoreU(widened(from + first + i), kFloats, to + i);
      }
      return;
    }
    const int pixel = static_cast<int>(noted.value / 3);
    const auto channel = noted.value % 3;
    for (int k = -half; k <= half; ++k) {
      const ptrdiff_t near = reflected(pixel + k, job_.in.width);
      to[3 * (k + half)] = static_cast<float>(from[3 * near + channel]);
    }
  }

  const GaussianJob& job_;
  ptrdiff_t values_;
  ptrdiff_t margin_;
  ptrdiff_t line_;
  ptrdiff_t window_;
  float* lines_;
  float* windows_;
  float* columns_;
  const uint8_t** rows_;  // by y, beyond the edges, too
  Noted noted_[kAgain];
  int count_ = 0;
};

}  // namespace

void gaussian_blur(const GaussianJob& job) { GaussianBlur(job).run(); }

}  // namespace fastload::FASTLOAD_LEVEL
