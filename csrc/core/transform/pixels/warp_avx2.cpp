#if defined(__x86_64__)
#include "base/vectors.h"
#include "transform/pixels/warp_simd.h"

namespace fastload {
namespace {

int32_t load32(const void* from) {
  int32_t value = 0;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

__m128i load64(const void* from) { return _mm_loadl_epi64(static_cast<const __m128i*>(from)); }
__m128i load128(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }

// Four pixels of four bytes as twelve bytes, and the other way round.
__m128i narrow_order() {
  return _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
}
__m128i widen_order() {
  return _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
}

// Four doubles from the low words.
__m256d doubles(__m128i words) { return _mm256_cvtepi32_pd(words); }

struct Avx2 {
  static constexpr int kColumns = 4;

  static void widen(const uint8_t* from, int width, uint8_t* to) {
    for (int x = 0; x < width; x += 4) {
      const __m128i pixels = _mm_shuffle_epi8(load128(from + 3 * x), widen_order());
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 4 * x), pixels);
    }
  }

  static void narrow(const uint32_t* from, int width, uint8_t* to) {
    for (int x = 0; x < width; x += 4) {
      const __m128i pixels = _mm_shuffle_epi8(load128(from + x), narrow_order());
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 3 * x), pixels);
    }
  }

  static void places(const RowMotion& m, int column, const RowPlaces& at) {
    const auto all = [](double value) { return _mm256_set1_pd(value); };
    const __m256d half = all(0.5);
    const __m256d x = _mm256_add_pd(
        _mm256_cvtepi32_pd(_mm_add_epi32(_mm_set1_epi32(column), _mm_setr_epi32(0, 1, 2, 3))),
        half);
    const auto sum = [&](double a, double b, double c) {
      return _mm256_add_pd(_mm256_add_pd(_mm256_mul_pd(all(a), x), all(b)), all(c));
    };
    __m256d from_x = sum(m.ax, m.bx, m.cx), from_y = sum(m.ay, m.by, m.cy);
    if (m.perspective) {
      const __m256d w = sum(m.aw, m.bw, 1.0);
      from_x = _mm256_div_pd(from_x, w);
      from_y = _mm256_div_pd(from_y, w);
    }
    const auto inside = [&](__m256d value, int size) {
      return _mm256_and_pd(_mm256_cmp_pd(value, _mm256_setzero_pd(), _CMP_GE_OQ),
                           _mm256_cmp_pd(value, all(size), _CMP_LT_OQ));
    };
    const __m256d is_inside = _mm256_and_pd(inside(from_x, m.width), inside(from_y, m.height));
    from_x = _mm256_sub_pd(from_x, half);
    from_y = _mm256_sub_pd(from_y, half);
    const __m256d left = _mm256_floor_pd(from_x), top = _mm256_floor_pd(from_y);
    _mm256_storeu_pd(at.dx + column, _mm256_sub_pd(from_x, left));
    _mm256_storeu_pd(at.dy + column, _mm256_sub_pd(from_y, top));
    const __m128i border = _mm_set1_epi32(WidePicture::kBorder);
    const __m128i row = _mm_add_epi32(_mm256_cvttpd_epi32(top), border);
    const __m128i pixel = _mm_add_epi32(_mm_mullo_epi32(row, _mm_set1_epi32(m.stride)),
                                        _mm_add_epi32(_mm256_cvttpd_epi32(left), border));
    // The masks' low halves, one word each.
    const __m256 words = _mm256_castpd_ps(is_inside);
    const __m128i mask = _mm_castps_si128(_mm_shuffle_ps(
        _mm256_castps256_ps128(words), _mm256_extractf128_ps(words, 1), _MM_SHUFFLE(2, 0, 2, 0)));
    const __m128i outside = _mm_andnot_si128(mask, _mm_set1_epi32(-1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at.pixel + column),
                     _mm_or_si128(_mm_and_si128(mask, pixel), outside));
  }

  // Words in [0, 255] as bytes.
  static uint32_t bytes(__m128i words) {
    const __m128i order =
        _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    return static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_shuffle_epi8(words, order)));
  }

  static uint32_t bilinear(const uint8_t* above, const uint8_t* below, double dx, double dy) {
    const __m256d part = _mm256_set1_pd(dx);
    const auto line = [&](const uint8_t* from) {
      const __m256i both = _mm256_cvtepu8_epi32(load64(from));
      const __m128i left = _mm256_castsi256_si128(both);
      const __m128i step = _mm_sub_epi32(_mm256_extracti128_si256(both, 1), left);
      return _mm256_add_pd(doubles(left), _mm256_mul_pd(doubles(step), part));
    };
    const __m256d first = line(above);
    const __m256d step = _mm256_sub_pd(line(below), first);
    return bytes(
        _mm256_cvttpd_epi32(_mm256_add_pd(first, _mm256_mul_pd(step, _mm256_set1_pd(dy)))));
  }

  // Of warps along an axis.
  static constexpr int kLanes = 8;
  static __m128i bytes(const uint8_t* from) { return load64(from); }
  static __m256 floats(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)); }
  static __m256 floats(const float* from) { return _mm256_loadu_ps(from); }
  static __m256 all(float value) { return _mm256_set1_ps(value); }
  static __m256 sum(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
  static uint32_t close(__m256 sums) {
    const __m256 whole = _mm256_round_ps(sums, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256 distance = _mm256_andnot_ps(all(-0.0F), _mm256_sub_ps(sums, whole));
    return static_cast<uint32_t>(
        _mm256_movemask_ps(_mm256_cmp_ps(distance, all(kClose), _CMP_LT_OQ)));
  }
  static uint32_t unequal(__m128i bytes) {
    return ~static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128())));
  }
  static void truncated(__m256 sums, uint8_t* to) {
    const __m256i words = _mm256_cvttps_epi32(sums);
    const __m128i halves =
        _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(halves, halves));
  }

  static __m256d cubic(__m256d p1, __m256d p2, __m256d p3, __m256d p4, __m256d part) {
    const auto next = [&](__m256d p, __m256d sum) {
      return _mm256_add_pd(p, _mm256_mul_pd(part, sum));
    };
    return next(p1, next(p2, next(p3, p4)));
  }

  static uint32_t bicubic(const uint8_t* from, size_t stride, double dx, double dy) {
    const __m256d part = _mm256_set1_pd(dx);
    __m256d lines[4];
    for (size_t i = 0; i < 4; i += 2) {  // two lines at once: their polynomials are whole numbers
      const __m256i a = _mm256_cvtepu8_epi16(load128(from + i * stride));
      const __m256i b = _mm256_cvtepu8_epi16(load128(from + (i + 1) * stride));
      const __m256i odd = _mm256_unpacklo_epi64(a, b);   // v1 of both, v3 of both
      const __m256i even = _mm256_unpackhi_epi64(a, b);  // v2, v4
      const __m128i v1 = _mm256_castsi256_si128(odd), v3 = _mm256_extracti128_si256(odd, 1);
      const __m128i v2 = _mm256_castsi256_si128(even), v4 = _mm256_extracti128_si256(even, 1);
      const __m128i fall = _mm_sub_epi16(v1, v2), rise = _mm_sub_epi16(v3, v4);
      const __m256i p1 = _mm256_cvtepi16_epi32(v2);
      const __m256i p2 = _mm256_cvtepi16_epi32(_mm_sub_epi16(v3, v1));
      const __m256i p3 = _mm256_cvtepi16_epi32(_mm_add_epi16(_mm_add_epi16(fall, fall), rise));
      const __m256i p4 =
          _mm256_cvtepi16_epi32(_mm_sub_epi16(_mm_setzero_si128(), _mm_add_epi16(fall, rise)));
      const auto low = [](__m256i words) { return doubles(_mm256_castsi256_si128(words)); };
      const auto high = [](__m256i words) { return doubles(_mm256_extracti128_si256(words, 1)); };
      lines[i] = cubic(low(p1), low(p2), low(p3), low(p4), part);
      lines[i + 1] = cubic(high(p1), high(p2), high(p3), high(p4), part);
    }
    const auto [v1, v2, v3, v4] = lines;
    const __m256d fall = _mm256_sub_pd(v1, v2);
    const __m256d p2 = _mm256_sub_pd(v3, v1);
    const __m256d p3 = _mm256_sub_pd(_mm256_add_pd(_mm256_add_pd(fall, fall), v3), v4);
    const __m256d p4 = _mm256_add_pd(_mm256_sub_pd(_mm256_sub_pd(v2, v1), v3), v4);
    const __m256d value = cubic(v2, p2, p3, p4, _mm256_set1_pd(dy));
    return bytes(_mm256_cvttpd_epi32(
        _mm256_min_pd(_mm256_max_pd(value, _mm256_setzero_pd()), _mm256_set1_pd(255.0))));
  }
};

void nearest(const Picture& from, uint32_t x, uint32_t y, uint32_t dx, uint32_t dy, uint8_t* to) {
  const auto all = [](uint32_t value) { return _mm256_set1_epi32(static_cast<int>(value)); };
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  __m256i at_x = _mm256_add_epi32(all(x), _mm256_mullo_epi32(all(dx), lanes));
  __m256i at_y = _mm256_add_epi32(all(y), _mm256_mullo_epi32(all(dy), lanes));
  const __m256i width = _mm256_set1_epi32(from.width), height = _mm256_set1_epi32(from.height);
  const __m256i none = _mm256_set1_epi32(-1);
  for (int i = 0; i < from.width; i += 8, to += 24) {
    const __m256i column = _mm256_srai_epi32(at_x, 16), row = _mm256_srai_epi32(at_y, 16);
    const __m256i inside = _mm256_and_si256(
        _mm256_and_si256(_mm256_cmpgt_epi32(column, none), _mm256_cmpgt_epi32(width, column)),
        _mm256_and_si256(_mm256_cmpgt_epi32(row, none), _mm256_cmpgt_epi32(height, row)));
    const __m256i pixel = _mm256_add_epi32(_mm256_mullo_epi32(row, width), column);
    const __m256i offset = _mm256_add_epi32(_mm256_add_epi32(pixel, pixel), pixel);
    alignas(32) int32_t offsets[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(offsets), offset);
    unsigned mask = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(inside)));
    if (from.width - i < 8) mask &= (1u << (from.width - i)) - 1;
    at_x = _mm256_add_epi32(at_x, all(8 * dx));
    at_y = _mm256_add_epi32(at_y, all(8 * dy));
    if (mask == 255) {
      for (int k = 0; k < 8; k += 4) {
        const auto word = [&](int j) { return load32(from.pixels + offsets[k + j]); };
        const __m128i four =
            _mm_shuffle_epi8(_mm_setr_epi32(word(0), word(1), word(2), word(3)), narrow_order());
        _mm_storel_epi64(reinterpret_cast<__m128i*>(to + 3 * k), four);
        const int last = _mm_extract_epi32(four, 2);
        std::memcpy(to + 3 * k + 8, &last, sizeof(last));
      }
      continue;
    }
    for (; mask != 0; mask &= mask - 1) {
      const int k = __builtin_ctz(mask);
      std::memcpy(to + 3 * k, from.pixels + offsets[k], 3);
    }
  }
}

}  // namespace

const WarpKernels kAvx2Warp{nearest, warp_filtered<Avx2>, WarpScratch::bytes};

}  // namespace fastload

#endif
