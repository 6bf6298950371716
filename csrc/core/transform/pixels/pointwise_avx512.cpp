// AVX-512's vector operations for pointwise_simd.h.
#include "transform/pixels/pointwise.h"

#if defined(__x86_64__)
#include "base/vectors.h"
#include "transform/pixels/pointwise_simd.h"

namespace fastload {
namespace {

using Indices = std::array<uint8_t, 64>;

// Of a channel's 64 bytes, those in the first two of three vectors (indices to 127), and in the
// third.
struct Split {
  Indices front[3] = {};
  Indices back[3] = {};
  uint64_t in_back[3] = {};
  constexpr Split() {
    for (size_t c = 0; c < 3; ++c) {
      for (size_t i = 0; i < 64; ++i) {
        const size_t at = 3 * i + c;
        if (at < 128) {
          front[c][i] = static_cast<uint8_t>(at);
        } else {
          back[c][i] = static_cast<uint8_t>(at - 128);
          in_back[c] |= uint64_t{1} << i;
        }
      }
    }
  }
};

// Of each of three vectors of pixels: bytes of red and green (from 64 on), and of blue.
struct Join {
  Indices two[3] = {};
  Indices blue[3] = {};
  uint64_t is_blue[3] = {};
  constexpr Join() {
    for (size_t v = 0; v < 3; ++v) {
      for (size_t i = 0; i < 64; ++i) {
        const size_t at = 64 * v + i;
        if (at % 3 < 2) {
          two[v][i] = static_cast<uint8_t>(at / 3 + 64 * (at % 3));
        } else {
          blue[v][i] = static_cast<uint8_t>(at / 3);
          is_blue[v] |= uint64_t{1} << i;
        }
      }
    }
  }
};

constexpr Split kSplit;
constexpr Join kJoin;

__m512i load(const uint8_t* from) { return _mm512_loadu_si512(from); }
__m512i load(const Indices& from) { return _mm512_loadu_si512(from.data()); }
void store(uint8_t* to, __m512i value) { _mm512_storeu_si512(to, value); }

// blended() as steps from the first value, by the distance of the second one: steps up, if that is
// larger, and down.
struct BlendSteps {
  static constexpr int kNever = 255;

  explicit BlendSteps(float factor) : usable(factor >= 0.0f && factor < 1000.0f) {
    up_late.fill(kNever);
    down_late.fill(kNever);
    for (int i = 0; usable && i < 256; ++i) {
      const auto at = static_cast<size_t>(i);
      const float rise = factor * static_cast<float>(i);
      const float fall = factor * static_cast<float>(-i);
      up[at] = static_cast<uint8_t>(std::min(std::floor(rise), 255.0f));
      down[at] = static_cast<uint8_t>(std::min(-std::floor(fall), 255.0f));
      if (near_next(rise)) up_late[at] = last_on_time(rise, 0, 255 - i);
      if (near_next(fall) && fall > -255.0f) down_late[at] = last_on_time(fall, i, 255);
      exact = exact && up_late[at] == kNever && down_late[at] == kNever;
    }
  }

  bool usable;
  bool exact = true;  // up and down are all there is
  ByteTable up = {};
  ByteTable down = {};
  // A step just below a whole number becomes that number where the sum is rounded to it: for all
  // first values above these.
  ByteTable up_late;
  ByteTable down_late;

 private:
  static bool near_next(float step) { return std::floor(step) + 1.0f - step < 1.0f / 65536.0f; }
  static uint8_t last_on_time(float step, int low, int high) {
    const auto late = [&](int first) {
      const auto value = static_cast<float>(first);
      return std::floor(value + step) > value + std::floor(step);
    };
    if (!late(high)) return kNever;
    while (low < high) {
      const int middle = (low + high) / 2;
      late(middle) ? high = middle : low = middle + 1;
    }
    return static_cast<uint8_t>(low - 1);
  }
};

struct Points64 {
  static constexpr size_t kPixels = 64;

  class Table {
   public:
    explicit Table(const uint8_t* from) {
      for (size_t i = 0; i < 4; ++i) part_[i] = load(from + 64 * i);
    }
    void apply(uint8_t* bytes) const { store(bytes, of(load(bytes))); }
    [[nodiscard]] __m512i of(__m512i x) const {
      const __m512i low = _mm512_permutex2var_epi8(part_[0], x, part_[1]);
      const __m512i high = _mm512_permutex2var_epi8(part_[2], x, part_[3]);
      return _mm512_mask_blend_epi8(_mm512_movepi8_mask(x), low, high);
    }

   private:
    __m512i part_[4];
  };

  class Blend {
   public:
    explicit Blend(float factor)
        : factor_(factor),
          steps_(factor),
          up_(steps_.up.data()),
          down_(steps_.down.data()),
          up_late_(steps_.up_late.data()),
          down_late_(steps_.down_late.data()) {}
    void apply(const uint8_t* from, const uint8_t* to, uint8_t* out) const {
      if (!steps_.usable) {
        for (size_t i = 0; i < kPixels; ++i) out[i] = blended(from[i], to[i], factor_);
        return;
      }
      const __m512i x = load(from);
      const __m512i y = load(to);
      const __m512i distance = _mm512_sub_epi8(_mm512_max_epu8(x, y), _mm512_min_epu8(x, y));
      __m512i up = up_.of(distance);
      __m512i down = down_.of(distance);
      if (!steps_.exact) {
        const __m512i one = _mm512_set1_epi8(1);
        const __mmask64 rounded_up = _mm512_cmpgt_epu8_mask(x, up_late_.of(distance));
        const __mmask64 rounded_down = _mm512_cmpgt_epu8_mask(x, down_late_.of(distance));
        up = _mm512_mask_adds_epu8(up, rounded_up, up, one);
        down = _mm512_mask_sub_epi8(down, rounded_down, down, one);
      }
      const __m512i more = _mm512_adds_epu8(x, up);
      store(out, _mm512_mask_subs_epu8(more, _mm512_cmplt_epu8_mask(y, x), x, down));
    }

   private:
    float factor_;
    BlendSteps steps_;
    Table up_;
    Table down_;
    Table up_late_;
    Table down_late_;
  };

  static void split(const uint8_t* rgb, uint8_t* r, uint8_t* g, uint8_t* b) {
    const __m512i first = load(rgb);
    const __m512i second = load(rgb + 64);
    const __m512i third = load(rgb + 128);
    uint8_t* const to[] = {r, g, b};
    for (size_t c = 0; c < 3; ++c) {
      const __m512i front = _mm512_permutex2var_epi8(first, load(kSplit.front[c]), second);
      store(to[c],
            _mm512_mask_permutexvar_epi8(front, kSplit.in_back[c], load(kSplit.back[c]), third));
    }
  }

  static void join(const uint8_t* r, const uint8_t* g, const uint8_t* b, uint8_t* rgb) {
    const __m512i red = load(r);
    const __m512i green = load(g);
    const __m512i blue = load(b);
    for (size_t v = 0; v < 3; ++v) {
      const __m512i two = _mm512_permutex2var_epi8(red, load(kJoin.two[v]), green);
      store(rgb + 64 * v,
            _mm512_mask_permutexvar_epi8(two, kJoin.is_blue[v], load(kJoin.blue[v]), blue));
    }
  }
};

}  // namespace

constinit const PointKernels kPointKernelsAvx512 = kernels_of<Points64>();

}  // namespace fastload
#endif
