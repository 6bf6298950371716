#if defined(__x86_64__)
#include "transform/pixels/warp_simd.h"

namespace fastload {
namespace {

int32_t load32(const void* from) {
  int32_t value = 0;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// Four pixels of four bytes as twelve bytes, and the other way round.
__m128i narrow_order() {
  return _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
}
__m128i widen_order() {
  return _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
}

struct Avx2 {
  static void widen(const uint8_t* from, int width, uint8_t* to) {
    for (int x = 0; x < width; x += 4) {
      const __m128i pixels = _mm_shuffle_epi8(load128(from + 3 * x), widen_order());
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 4 * x), pixels);
    }
  }

  static void narrow(const uint8_t* from, int width, uint8_t* to) {
    for (int x = 0; x < width; x += 4) {
      const __m128i pixels = _mm_shuffle_epi8(load128(from + 4 * x), narrow_order());
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 3 * x), pixels);
    }
  }

  static constexpr int kColumns = 4;
  using Doubles = __m256d;
  using Singles = __m128;
  static __m256d all(double value) { return _mm256_set1_pd(value); }
  static __m256d counted(int first) {
    return _mm256_cvtepi32_pd(_mm_add_epi32(_mm_set1_epi32(first), _mm_setr_epi32(0, 1, 2, 3)));
  }
  static __m256d floor(__m256d values) { return _mm256_floor_pd(values); }
  static __m256d where_inside(__m256d x, int width, __m256d y, int height, __m256d that) {
    const auto inside = [](__m256d value, int size) {
      return _mm256_and_pd(_mm256_cmp_pd(value, _mm256_setzero_pd(), _CMP_GE_OQ),
                           _mm256_cmp_pd(value, all(double(size)), _CMP_LT_OQ));
    };
    return _mm256_blendv_pd(all(-1.0), that, _mm256_and_pd(inside(x, width), inside(y, height)));
  }
  static void to_words(__m256d values, int32_t* to) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvttpd_epi32(values));
  }
  static __m128 singles(__m256d values) { return _mm256_cvtpd_ps(values); }
  static void to_floats(__m128 values, float* to) { _mm_storeu_ps(to, values); }
  static void to_fours(__m128 a, __m128 b, __m128 c, __m128 d, float* to) {
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a);
    _mm_storeu_ps(to + 4, b);
    _mm_storeu_ps(to + 8, c);
    _mm_storeu_ps(to + 12, d);
  }

  static constexpr int kLanes = 8;
  using Floats = __m256;
  static __m128i bytes(const uint8_t* from) { return load64(from); }
  static __m256 floats(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)); }
  static __m256 floats(const float* from) { return _mm256_loadu_ps(from); }
  static __m256 all(float value) { return _mm256_set1_ps(value); }
  static __m256 sum(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
  static uint32_t close(__m256 sums, float by) {
    const __m256 whole = _mm256_round_ps(sums, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256 distance = _mm256_andnot_ps(all(-0.0F), _mm256_sub_ps(sums, whole));
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(distance, all(by), _CMP_LT_OQ)));
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

  static constexpr int kPixels = 2;
  static constexpr int kWindow = 16;
  static NeighbourBytes neighbours(const uint8_t* from, size_t, const uint8_t* order) {
    const __m128i chosen = _mm_shuffle_epi8(load128(from), load128(order));
    return {chosen, _mm_srli_si128(chosen, 8)};
  }
  static __m256 whole(__m256 values) {
    return _mm256_round_ps(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static __m256 uneven(__m256 differences) {
    return _mm256_cmp_ps(differences, _mm256_setzero_ps(), _CMP_NEQ_OQ);
  }
  static __m256 apart(__m256 values, __m256 differences) {
    const __m256 even = _mm256_cmp_ps(values, whole(values), _CMP_EQ_OQ);
    return values + _mm256_and_ps(_mm256_and_ps(even, uneven(differences)), all(kLifted));
  }
  static uint32_t unlike(__m256 values, __m256 differences) {
    const __m256 odd = _mm256_cmp_ps(values, whole(values), _CMP_NEQ_OQ);
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_or_ps(odd, uneven(differences))));
  }
  static void store(__m256 values, float* to) { _mm256_storeu_ps(to, values); }

  static __m128i two_rows(const uint8_t* above, const uint8_t* below, int part) {
    return load64(part == 0 ? above : below);
  }
  static __m256 spread(const float* four, int part) {
    const __m256i order = part == 0 ? _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1)
                                    : _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3);
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(four)), order);
  }
  static __m128 quarters(__m256 sums) {
    return _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
  }
};

void reversed(const uint8_t* from, int count, uint8_t* to) {
  const __m128i order = _mm_setr_epi8(12, 13, 14, 9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2, -1);
  for (; count >= 6; count -= 5, to += 15) {  // a byte more, of the next pixel
    const __m128i pixels = _mm_shuffle_epi8(load128(from + 3 * (count - 5)), order);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), pixels);
  }
  kScalarWarp.reversed(from, count, to);
}

void nearest(const Picture& from, uint32_t x, uint32_t y, uint32_t dx, uint32_t dy, int count,
             uint8_t* to) {
  const auto all = [](uint32_t value) { return _mm256_set1_epi32(static_cast<int>(value)); };
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  __m256i at_x = _mm256_add_epi32(all(x), _mm256_mullo_epi32(all(dx), lanes));
  __m256i at_y = _mm256_add_epi32(all(y), _mm256_mullo_epi32(all(dy), lanes));
  const __m256i width = _mm256_set1_epi32(from.width), height = _mm256_set1_epi32(from.height);
  const __m256i none = _mm256_set1_epi32(-1);
  for (int i = 0; i < count; i += 8, to += 24) {
    const __m256i column = _mm256_srai_epi32(at_x, 16), row = _mm256_srai_epi32(at_y, 16);
    const __m256i inside = _mm256_and_si256(
        _mm256_and_si256(_mm256_cmpgt_epi32(column, none), _mm256_cmpgt_epi32(width, column)),
        _mm256_and_si256(_mm256_cmpgt_epi32(row, none), _mm256_cmpgt_epi32(height, row)));
    const __m256i pixel = _mm256_add_epi32(_mm256_mullo_epi32(row, width), column);
    const __m256i offset = _mm256_add_epi32(_mm256_add_epi32(pixel, pixel), pixel);
    alignas(32) int32_t offsets[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(offsets), offset);
    unsigned mask = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(inside)));
    if (count - i < 8) mask &= (1u << (count - i)) - 1;
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

const WarpKernels kAvx2Warp{nearest, reversed, warp_filtered<Avx2>, warp_bytes<Avx2>};

}  // namespace fastload

#endif
