// AVX2's vector operations for pointwise_simd.h.
#include "transform/pixels/pointwise.h"

#if defined(__x86_64__)
#include "base/vectors.h"
#include "transform/pixels/pointwise_simd.h"

namespace fastload {
namespace {

// Shuffles of 16 bytes; 0x80 makes a zero. split: [channel][which of the three vectors it comes
// from]; join: [vector][channel].
struct Shuffles {
  std::array<std::array<std::array<uint8_t, 16>, 3>, 3> split = {};
  std::array<std::array<std::array<uint8_t, 16>, 3>, 3> join = {};
  constexpr Shuffles() {
    for (auto* all : {&split, &join}) {
      for (auto& row : *all) {
        for (auto& shuffle : row) shuffle.fill(0x80);
      }
    }
    for (size_t at = 0; at < 48; ++at) {
      split[at % 3][at / 16][at / 3] = static_cast<uint8_t>(at % 16);
      join[at / 16][at % 3][at % 16] = static_cast<uint8_t>(at / 3);
    }
  }
};

constexpr Shuffles kShuffles;

__m256i load(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
void store(uint8_t* to, __m256i value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
}
// The same 16 bytes in both halves.
__m256i both(const uint8_t* from) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
__m256i halves(const uint8_t* low, const uint8_t* high) {
  const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(low));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(first),
                                 _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 1);
}

struct Points32 {
  static constexpr size_t kPixels = 32;

  class Table {
   public:
    explicit Table(const uint8_t* from) {
      for (size_t i = 0; i < 16; ++i) part_[i] = both(from + 16 * i);
    }
    // All 16 parts by the low four bits, then halved four times, by a bit each.
    void apply(uint8_t* bytes) const {
      const __m256i x = load(bytes);
      const __m256i low = _mm256_and_si256(x, _mm256_set1_epi8(15));
      const __m256i bit4 = _mm256_slli_epi16(x, 3);
      const __m256i bit5 = _mm256_slli_epi16(x, 2);
      const __m256i bit6 = _mm256_slli_epi16(x, 1);
      const auto two = [&](size_t i) {
        return _mm256_blendv_epi8(_mm256_shuffle_epi8(part_[i], low),
                                  _mm256_shuffle_epi8(part_[i + 1], low), bit4);
      };
      const auto four = [&](size_t i) { return _mm256_blendv_epi8(two(i), two(i + 2), bit5); };
      const auto eight = [&](size_t i) { return _mm256_blendv_epi8(four(i), four(i + 4), bit6); };
      store(bytes, _mm256_blendv_epi8(eight(0), eight(8), x));
    }

   private:
    __m256i part_[16];
  };

  class Blend {
   public:
    explicit Blend(float factor) : factor_(_mm256_set1_ps(factor)) {}
    void apply(const uint8_t* from, const uint8_t* to, uint8_t* out) const {
      const __m256i first = _mm256_packus_epi32(eight(from, to), eight(from + 8, to + 8));
      const __m256i second =
          _mm256_packus_epi32(eight(from + 16, to + 16), eight(from + 24, to + 24));
      const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
      store(out, _mm256_permutevar8x32_epi32(_mm256_packus_epi16(first, second), order));
    }

   private:
    // blended() of eight pairs, not negative.
    [[nodiscard]] __m256i eight(const uint8_t* from, const uint8_t* to) const {
      const __m256i x = widened(from);
      const __m256 difference = _mm256_cvtepi32_ps(_mm256_sub_epi32(widened(to), x));
      const __m256 value = _mm256_add_ps(_mm256_cvtepi32_ps(x), _mm256_mul_ps(factor_, difference));
      const __m256 positive = _mm256_max_ps(value, _mm256_setzero_ps());
      return _mm256_cvttps_epi32(_mm256_min_ps(positive, _mm256_set1_ps(255.0f)));
    }
    static __m256i widened(const uint8_t* from) {
      return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    }

    __m256 factor_;
  };

  static void split(const uint8_t* rgb, uint8_t* r, uint8_t* g, uint8_t* b) {
    const __m256i from[] = {halves(rgb, rgb + 48), halves(rgb + 16, rgb + 64),
                            halves(rgb + 32, rgb + 80)};
    uint8_t* const to[] = {r, g, b};
    for (size_t c = 0; c < 3; ++c) store(to[c], gathered(from, kShuffles.split[c]));
  }

  static void join(const uint8_t* r, const uint8_t* g, const uint8_t* b, uint8_t* rgb) {
    const __m256i from[] = {load(r), load(g), load(b)};
    for (size_t v = 0; v < 3; ++v) {
      const __m256i pixels = gathered(from, kShuffles.join[v]);
      auto* const to = reinterpret_cast<__m128i*>(rgb + 16 * v);
      _mm_storeu_si128(to, _mm256_castsi256_si128(pixels));
      _mm_storeu_si128(to + 3, _mm256_extracti128_si256(pixels, 1));
    }
  }

 private:
  static __m256i gathered(const __m256i* from,
                          const std::array<std::array<uint8_t, 16>, 3>& shuffles) {
    __m256i all = _mm256_shuffle_epi8(from[0], both(shuffles[0].data()));
    all = _mm256_or_si256(all, _mm256_shuffle_epi8(from[1], both(shuffles[1].data())));
    return _mm256_or_si256(all, _mm256_shuffle_epi8(from[2], both(shuffles[2].data())));
  }
};

}  // namespace

constinit const PointKernels kPointKernelsAvx2 = kernels_of<Points32>();

}  // namespace fastload
#endif
