#if defined(__x86_64__)
#include <array>

#include "transform/pixels/warp_simd.h"

namespace fastload {
namespace {

// Byte 3 * i + c of 16 pixels of four bytes.
constexpr std::array<uint8_t, 64> kNarrow = [] {
  std::array<uint8_t, 64> order{};
  for (size_t i = 0; i < 48; ++i) order[i] = static_cast<uint8_t>(i / 3 * 4 + i % 3);
  return order;
}();

__m512i narrowed(__m512i pixels) {
  return _mm512_permutexvar_epi8(_mm512_loadu_si512(kNarrow.data()), pixels);
}

__m256i load256(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }

__mmask64 three_each(__mmask16 pixels) { return _pdep_u64(pixels, 0x249249249249) * 7; }
__mmask16 first_of(int count) {
  return static_cast<__mmask16>(count >= 16 ? 0xFFFF : (1u << count) - 1);
}

struct Avx512 {
  static void widen(const uint8_t* from, int width, uint8_t* to) {
    const __m128i order = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
    for (int x = 0; x < width; x += 4) {
      const __m128i pixels = _mm_shuffle_epi8(load128(from + 3 * x), order);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 4 * x), pixels);
    }
  }

  static void narrow(const uint8_t* from, int width, uint8_t* to) {
    for (int x = 0; x < width; x += 16) {
      const __m512i pixels = narrowed(_mm512_loadu_si512(from + 4 * x));
      _mm512_mask_storeu_epi8(to + 3 * x, three_each(first_of(width - x)), pixels);
    }
  }

  static constexpr int kColumns = 8;
  using Doubles = __m512d;
  using Singles = __m256;
  static __m512d all(double value) { return _mm512_set1_pd(value); }
  static __m512d counted(int first) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm512_cvtepi32_pd(_mm256_add_epi32(_mm256_set1_epi32(first), lanes));
  }
  static __m512d floor(__m512d values) {
    return _mm512_roundscale_pd(values, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  }
  static __m512d where_inside(__m512d x, int width, __m512d y, int height, __m512d that) {
    const auto inside = [](__mmask8 mask, __m512d value, int size) {
      mask = _mm512_mask_cmp_pd_mask(mask, value, _mm512_setzero_pd(), _CMP_GE_OQ);
      return _mm512_mask_cmp_pd_mask(mask, value, all(double(size)), _CMP_LT_OQ);
    };
    return _mm512_mask_mov_pd(all(-1.0), inside(inside(0xFF, x, width), y, height), that);
  }
  static void to_words(__m512d values, int32_t* to) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvttpd_epi32(values));
  }
  static __m256 singles(__m512d values) { return _mm512_cvtpd_ps(values); }
  static void to_floats(__m256 values, float* to) { _mm256_storeu_ps(to, values); }
  static void to_fours(__m256 a, __m256 b, __m256 c, __m256 d, float* to) {
    const auto both = [](__m256 low, __m256 high) {
      return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
    };
    const __m512 ab = both(a, b), cd = both(c, d);
    const __m512i first =
        _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(4));
    _mm512_storeu_ps(to, _mm512_permutex2var_ps(ab, first, cd));
    _mm512_storeu_ps(to + 16, _mm512_permutex2var_ps(ab, second, cd));
  }

  static constexpr int kLanes = 16;
  using Floats = __m512;
  static __m128i bytes(const uint8_t* from) { return load128(from); }
  static __m512 floats(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)); }
  static __m512 floats(const float* from) { return _mm512_loadu_ps(from); }
  static __m512 all(float value) { return _mm512_set1_ps(value); }
  static __m512 sum(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
  static uint32_t close(__m512 sums, float by) {
    const __m512 distance = _mm512_reduce_ps(sums, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm512_cmp_ps_mask(_mm512_abs_ps(distance), all(by), _CMP_LT_OQ);
  }
  static uint32_t unequal(__m128i bytes) { return _mm_test_epi8_mask(bytes, bytes); }
  static void truncated(__m512 sums, uint8_t* to) {
    const __m512i words = _mm512_max_epi32(_mm512_cvttps_epi32(sums), _mm512_setzero_si512());
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtusepi32_epi8(words));
  }

  static constexpr int kPixels = 5;
  static constexpr int kWindow = 64;
  static NeighbourBytes neighbours(const uint8_t* from, size_t valid, const uint8_t* order) {
    const __mmask64 there = ~uint64_t{0} >> (64 - valid);
    const __m512i chosen = _mm512_permutexvar_epi8(_mm512_castsi256_si512(load256(order)),
                                                   _mm512_maskz_loadu_epi8(there, from));
    return {_mm512_castsi512_si128(chosen), _mm512_extracti32x4_epi32(chosen, 1)};
  }
  static __mmask16 uneven(__m512 differences) {
    return _mm512_cmp_ps_mask(differences, _mm512_setzero_ps(), _CMP_NEQ_OQ);
  }
  static __m512 whole(__m512 values) {
    return _mm512_roundscale_ps(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static __m512 apart(__m512 values, __m512 differences) {
    const __mmask16 lifted =
        _mm512_mask_cmp_ps_mask(uneven(differences), values, whole(values), _CMP_EQ_OQ);
    return _mm512_mask_add_ps(values, lifted, values, all(kLifted));
  }
  static uint32_t unlike(__m512 values, __m512 differences) {
    return uneven(differences) | _mm512_cmp_ps_mask(values, whole(values), _CMP_NEQ_OQ);
  }
  static void store(__m512 values, float* to) { _mm512_storeu_ps(to, values); }

  static __m128i two_rows(const uint8_t* above, const uint8_t* below, int) {
    return _mm_unpacklo_epi64(load64(above), load64(below));
  }
  static __m512 spread(const float* four, int) {
    const __m512i order = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return _mm512_permutexvar_ps(order, _mm512_castps128_ps512(_mm_loadu_ps(four)));
  }
  static __m128 quarters(__m512 sums) {
    const __m256 half =
        _mm256_add_ps(_mm512_castps512_ps256(sums), _mm512_extractf32x8_ps(sums, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  }
};

// Byte 3 * i + c of 16 pixels of three bytes in reverse.
constexpr std::array<uint8_t, 64> kReversed = [] {
  std::array<uint8_t, 64> order{};
  for (size_t i = 0; i < 48; ++i) order[i] = static_cast<uint8_t>((15 - i / 3) * 3 + i % 3);
  return order;
}();

void reversed(const uint8_t* from, int count, uint8_t* to) {
  const __m512i order = _mm512_loadu_si512(kReversed.data());
  constexpr __mmask64 kSixteen = (__mmask64{1} << 48) - 1;
  for (; count >= 16; count -= 16, to += 48) {
    const __m512i pixels = _mm512_maskz_loadu_epi8(kSixteen, from + 3 * (count - 16));
    _mm512_mask_storeu_epi8(to, kSixteen, _mm512_permutexvar_epi8(order, pixels));
  }
  kScalarWarp.reversed(from, count, to);
}

void nearest(const Picture& from, uint32_t x, uint32_t y, uint32_t dx, uint32_t dy, int count,
             uint8_t* to) {
  const auto all = [](uint32_t value) { return _mm512_set1_epi32(static_cast<int>(value)); };
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  __m512i at_x = _mm512_add_epi32(all(x), _mm512_mullo_epi32(all(dx), lanes));
  __m512i at_y = _mm512_add_epi32(all(y), _mm512_mullo_epi32(all(dy), lanes));
  const __m512i width = _mm512_set1_epi32(from.width), height = _mm512_set1_epi32(from.height);
  for (int i = 0; i < count; i += 16) {
    const __m512i column = _mm512_srai_epi32(at_x, 16), row = _mm512_srai_epi32(at_y, 16);
    const __mmask16 inside = _mm512_mask_cmplt_epu32_mask(
        _mm512_mask_cmplt_epu32_mask(first_of(count - i), column, width), row, height);
    at_x = _mm512_add_epi32(at_x, all(16 * dx));
    at_y = _mm512_add_epi32(at_y, all(16 * dy));
    if (inside == 0) continue;
    const __m512i pixel = _mm512_add_epi32(_mm512_mullo_epi32(row, width), column);
    const __m512i offset = _mm512_add_epi32(_mm512_add_epi32(pixel, pixel), pixel);
    const __m512i pixels =
        _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), inside, offset, from.pixels, 1);
    _mm512_mask_storeu_epi8(to + 3 * i, three_each(inside), narrowed(pixels));
  }
}

}  // namespace

const WarpKernels kAvx512Warp{nearest, reversed, warp_filtered<Avx512>, warp_bytes<Avx512>};

}  // namespace fastload

#endif
