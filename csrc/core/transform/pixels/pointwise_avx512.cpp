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

struct Points64 {
  static constexpr size_t kPixels = 64;

  class Table {
   public:
    explicit Table(const uint8_t* from) {
      for (size_t i = 0; i < 4; ++i) part_[i] = load(from + 64 * i);
    }
    void apply(uint8_t* bytes) const {
      const __m512i x = load(bytes);
      const __m512i low = _mm512_permutex2var_epi8(part_[0], x, part_[1]);
      const __m512i high = _mm512_permutex2var_epi8(part_[2], x, part_[3]);
      store(bytes, _mm512_mask_blend_epi8(_mm512_movepi8_mask(x), low, high));
    }

   private:
    __m512i part_[4];
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
