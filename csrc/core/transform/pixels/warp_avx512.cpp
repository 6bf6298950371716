#if defined(__x86_64__)
#include <array>

#include "base/vectors.h"
#include "transform/pixels/warp_simd.h"

namespace fastload {
namespace {

__m128i load64(const void* from) { return _mm_loadl_epi64(static_cast<const __m128i*>(from)); }
__m128i load128(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }

// Byte 3 * i + c of 16 pixels of four bytes.
constexpr std::array<uint8_t, 64> kNarrow = [] {
  std::array<uint8_t, 64> order{};
  for (size_t i = 0; i < 48; ++i) order[i] = static_cast<uint8_t>(i / 3 * 4 + i % 3);
  return order;
}();

__m512i narrowed(__m512i pixels) {
  return _mm512_permutexvar_epi8(_mm512_loadu_si512(kNarrow.data()), pixels);
}

__mmask64 three_each(__mmask16 pixels) { return _pdep_u64(pixels, 0x249249249249) * 7; }
__mmask16 first_of(int count) {
  return static_cast<__mmask16>(count >= 16 ? 0xFFFF : (1u << count) - 1);
}

struct Avx512 {
  static constexpr int kColumns = 8;

  static void widen(const uint8_t* from, int width, uint8_t* to) {
    const __m128i order = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
    for (int x = 0; x < width; x += 4) {
      const __m128i pixels = _mm_shuffle_epi8(load128(from + 3 * x), order);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 4 * x), pixels);
    }
  }

  static void narrow(const uint32_t* from, int width, uint8_t* to) {
    for (int x = 0; x < width; x += 16) {
      const __m512i pixels = narrowed(_mm512_loadu_si512(from + x));
      _mm512_mask_storeu_epi8(to + 3 * x, three_each(first_of(width - x)), pixels);
    }
  }

  static void places(const RowMotion& m, int column, const RowPlaces& at) {
    const auto all = [](double value) { return _mm512_set1_pd(value); };
    const __m512d half = all(0.5);
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m512d x =
        _mm512_add_pd(_mm512_cvtepi32_pd(_mm256_add_epi32(_mm256_set1_epi32(column), lanes)), half);
    const auto sum = [&](double a, double b, double c) {
      return _mm512_add_pd(_mm512_add_pd(_mm512_mul_pd(all(a), x), all(b)), all(c));
    };
    __m512d from_x = sum(m.ax, m.bx, m.cx), from_y = sum(m.ay, m.by, m.cy);
    if (m.perspective) {
      const __m512d w = sum(m.aw, m.bw, 1.0);
      from_x = _mm512_div_pd(from_x, w);
      from_y = _mm512_div_pd(from_y, w);
    }
    const auto inside = [&](__m512d value, int size) {
      const __mmask8 from_zero = _mm512_cmp_pd_mask(value, _mm512_setzero_pd(), _CMP_GE_OQ);
      return _mm512_mask_cmp_pd_mask(from_zero, value, all(size), _CMP_LT_OQ);
    };
    const __mmask8 is_inside = inside(from_x, m.width) & inside(from_y, m.height);
    from_x = _mm512_sub_pd(from_x, half);
    from_y = _mm512_sub_pd(from_y, half);
    constexpr int kFloor = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
    const __m512d left = _mm512_roundscale_pd(from_x, kFloor);
    const __m512d top = _mm512_roundscale_pd(from_y, kFloor);
    _mm512_storeu_pd(at.dx + column, _mm512_sub_pd(from_x, left));
    _mm512_storeu_pd(at.dy + column, _mm512_sub_pd(from_y, top));
    const __m256i border = _mm256_set1_epi32(WidePicture::kBorder);
    const __m256i row = _mm256_add_epi32(_mm512_cvttpd_epi32(top), border);
    const __m256i pixel = _mm256_add_epi32(_mm256_mullo_epi32(row, _mm256_set1_epi32(m.stride)),
                                           _mm256_add_epi32(_mm512_cvttpd_epi32(left), border));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at.pixel + column),
                        _mm256_mask_mov_epi32(_mm256_set1_epi32(-1), is_inside, pixel));
  }

  static uint32_t bytes(__m128i words) {
    return static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_cvtepi32_epi8(words)));
  }

  // Both lines at once.
  static uint32_t bilinear(const uint8_t* above, const uint8_t* below, double dx, double dy) {
    const __m512i all = _mm512_cvtepu8_epi32(_mm_unpacklo_epi32(load64(above), load64(below)));
    const __m256i left = _mm512_castsi512_si256(all);
    const __m256i step = _mm256_sub_epi32(_mm512_extracti64x4_epi64(all, 1), left);
    const __m512d lines = _mm512_add_pd(
        _mm512_cvtepi32_pd(left), _mm512_mul_pd(_mm512_cvtepi32_pd(step), _mm512_set1_pd(dx)));
    const __m256d first = _mm512_castpd512_pd256(lines);
    const __m256d fall = _mm256_sub_pd(_mm512_extractf64x4_pd(lines, 1), first);
    return bytes(
        _mm256_cvttpd_epi32(_mm256_add_pd(first, _mm256_mul_pd(fall, _mm256_set1_pd(dy)))));
  }

  // All four lines at once: their polynomials are whole numbers.
  static uint32_t bicubic(const uint8_t* from, size_t stride, double dx, double dy) {
    const auto two = [&](size_t line) {
      const __m128i first = load128(from + line * stride);
      const __m128i second = load128(from + (line + 1) * stride);
      return _mm512_cvtepu8_epi16(
          _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1));
    };
    const __m512i a = two(0), b = two(2);
    const __m512i v12 =
        _mm512_permutex2var_epi64(a, _mm512_setr_epi64(0, 4, 8, 12, 1, 5, 9, 13), b);
    const __m512i v34 =
        _mm512_permutex2var_epi64(a, _mm512_setr_epi64(2, 6, 10, 14, 3, 7, 11, 15), b);
    const __m256i v1 = _mm512_castsi512_si256(v12), v2 = _mm512_extracti64x4_epi64(v12, 1);
    const __m256i v3 = _mm512_castsi512_si256(v34), v4 = _mm512_extracti64x4_epi64(v34, 1);
    const __m256i fall = _mm256_sub_epi16(v1, v2), rise = _mm256_sub_epi16(v3, v4);
    const __m512i p1 = _mm512_cvtepi16_epi32(v2);
    const __m512i p2 = _mm512_cvtepi16_epi32(_mm256_sub_epi16(v3, v1));
    const __m512i p3 = _mm512_cvtepi16_epi32(_mm256_add_epi16(_mm256_add_epi16(fall, fall), rise));
    const __m512i p4 = _mm512_cvtepi16_epi32(
        _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_add_epi16(fall, rise)));
    const __m512d part = _mm512_set1_pd(dx);
    const auto cubic = [&](auto half) {
      const auto next = [&](__m512i p, __m512d sum) {
        return _mm512_add_pd(half(p), _mm512_mul_pd(part, sum));
      };
      return next(p1, next(p2, next(p3, half(p4))));
    };
    const __m512d upper =
        cubic([](__m512i p) { return _mm512_cvtepi32_pd(_mm512_castsi512_si256(p)); });
    const __m512d lower =
        cubic([](__m512i p) { return _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(p, 1)); });
    return down(upper, lower, _mm256_set1_pd(dy));
  }

  // Of warps along an axis.
  static constexpr int kLanes = 16;
  static __m128i bytes(const uint8_t* from) { return load128(from); }
  static __m512 floats(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)); }
  static __m512 floats(const float* from) { return _mm512_loadu_ps(from); }
  static __m512 all(float value) { return _mm512_set1_ps(value); }
  static __m512 sum(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
  static uint32_t close(__m512 sums) {
    const __m512 distance = _mm512_reduce_ps(sums, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm512_cmp_ps_mask(_mm512_abs_ps(distance), all(kClose), _CMP_LT_OQ);
  }
  static uint32_t unequal(__m128i bytes) { return _mm_test_epi8_mask(bytes, bytes); }
  static void truncated(__m512 sums, uint8_t* to) {
    const __m512i words = _mm512_max_epi32(_mm512_cvttps_epi32(sums), _mm512_setzero_si512());
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtusepi32_epi8(words));
  }

  static uint32_t down(__m512d upper, __m512d lower, __m256d part) {
    const __m256d v1 = _mm512_castpd512_pd256(upper), v2 = _mm512_extractf64x4_pd(upper, 1);
    const __m256d v3 = _mm512_castpd512_pd256(lower), v4 = _mm512_extractf64x4_pd(lower, 1);
    const __m256d fall = _mm256_sub_pd(v1, v2);
    const __m256d p2 = _mm256_sub_pd(v3, v1);
    const __m256d p3 = _mm256_sub_pd(_mm256_add_pd(_mm256_add_pd(fall, fall), v3), v4);
    const __m256d p4 = _mm256_add_pd(_mm256_sub_pd(_mm256_sub_pd(v2, v1), v3), v4);
    const auto next = [&](__m256d p, __m256d sum) {
      return _mm256_add_pd(p, _mm256_mul_pd(part, sum));
    };
    const __m256d value = next(v2, next(p2, next(p3, p4)));
    return bytes(_mm256_cvttpd_epi32(
        _mm256_min_pd(_mm256_max_pd(value, _mm256_setzero_pd()), _mm256_set1_pd(255.0))));
  }
};

void nearest(const Picture& from, uint32_t x, uint32_t y, uint32_t dx, uint32_t dy, uint8_t* to) {
  const auto all = [](uint32_t value) { return _mm512_set1_epi32(static_cast<int>(value)); };
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  __m512i at_x = _mm512_add_epi32(all(x), _mm512_mullo_epi32(all(dx), lanes));
  __m512i at_y = _mm512_add_epi32(all(y), _mm512_mullo_epi32(all(dy), lanes));
  const __m512i width = _mm512_set1_epi32(from.width), height = _mm512_set1_epi32(from.height);
  for (int i = 0; i < from.width; i += 16) {
    const __m512i column = _mm512_srai_epi32(at_x, 16), row = _mm512_srai_epi32(at_y, 16);
    const __mmask16 inside = _mm512_mask_cmplt_epu32_mask(
        _mm512_mask_cmplt_epu32_mask(first_of(from.width - i), column, width), row, height);
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

const WarpKernels kAvx512Warp{nearest, warp_filtered<Avx512>, WarpScratch::bytes};

}  // namespace fastload

#endif
