// torchvision's Gaussian blur.
//
// The rule: a pixel is the sum of its neighbours' products with the outer product of both
// directions' weights, added by fused multiply-adds row by row, left to right; rounded to the
// nearest even. That is a product for each weight, 529 for 23 x 23. So each pixel is estimated, by
// columns and then by rows, which is off by some 1e-5, and those that lie so near the middle of two
// numbers that the order of the sum may decide are computed again by the rule.
#include <cstring>

#include "transform/pixels/gaussian_blur_kernels.h"
// Behind the others:
#include "base/highway.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

// How near .5 a part is for which the order of the sum may decide. Not proven: 1e-5 were the
// largest differences of 63 million values.
constexpr float kDoubt = 1e-3F;

template <class D>
hn::Vec<D> widened(D d, const uint8_t* from) {
  const hn::RebindToSigned<D> whole;
  return hn::ConvertTo(d, hn::PromoteTo(whole, hn::LoadU(hn::Rebind<uint8_t, D>(), from)));
}

class GaussianBlur {
 public:
  explicit GaussianBlur(const GaussianJob& job)
      : job_(job),
        values_(3 * static_cast<ptrdiff_t>(job.in.width)),
        margin_(static_cast<ptrdiff_t>(gaussian_margin(job))),
        line_(static_cast<ptrdiff_t>(gaussian_line(job))),
        lines_(job.scratch),
        columns_(lines_ + kRows * line_),
        windows_(reinterpret_cast<uint8_t*>(columns_ + gaussian_columns(job))),
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
  static constexpr hn::ScalableTag<float> kFloats{};
  static constexpr int kLanes = static_cast<int>(hn::MaxLanes(kFloats));
  static constexpr int kRows = kGaussianRows;
  static constexpr int kAgain = kGaussianAgain;

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
        const Float x = widened(kFloats, from[t] + i);
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
    const auto whole = hn::NearestInt(sums);
    const hn::RebindToUnsigned<decltype(kFloats)> wide;
    hn::StoreU(hn::U8FromU32(hn::BitCast(wide, whole)), hn::Rebind<uint8_t, decltype(wide)>(), to);
    const Float part = hn::Abs(hn::Sub(sums, hn::ConvertTo(kFloats, whole)));
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
    constexpr hn::CappedTag<float, kAgain> kPart{};
    constexpr int kLanes = static_cast<int>(hn::MaxLanes(kPart));
    const int taps = 2 * job_.x.half + 1;
    float sums[kAgain] = {};
    for (int t = 0; t <= 2 * job_.y.half; ++t) {
      for (int n = 0; n < count_; ++n) gather(noted_[n], t - job_.y.half, windows_ + n);
      const float weight = job_.y.taps[t];
      for (int n = 0; n < kAgain; n += kLanes) {
        auto part = hn::LoadU(kPart, sums + n);
        for (int k = 0; k < taps; ++k) {
          const auto product = hn::Set(kPart, weight * job_.x.taps[k]);
          part = fused_multiply_add(widened(kPart, windows_ + n + k * kAgain), product, part);
        }
        hn::StoreU(part, kPart, sums + n);
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

  // The neighbours of a value in the row that is `rows` below it, kAgain bytes apart.
  void gather(const Noted& noted, int rows, uint8_t* to) const {
    const uint8_t* from = rows_[noted.y + rows] + noted.value % 3;
    const int pixel = static_cast<int>(noted.value / 3);
    const int half = job_.x.half;
    const bool inside = pixel >= half && pixel + half < job_.in.width;
    for (int k = -half; k <= half; ++k, to += kAgain) {
      *to = from[3 * ptrdiff_t{inside ? pixel + k : reflected(pixel + k, job_.in.width)}];
    }
  }

  const GaussianJob& job_;
  ptrdiff_t values_;
  ptrdiff_t margin_;
  ptrdiff_t line_;
  float* lines_;
  float* columns_;
  uint8_t* windows_;
  const uint8_t** rows_;  // by y, beyond the edges, too
  Noted noted_[kAgain];
  int count_ = 0;
};

}  // namespace

void gaussian_blur(const GaussianJob& job) { GaussianBlur(job).run(); }

}  // namespace fastload::FASTLOAD_LEVEL
