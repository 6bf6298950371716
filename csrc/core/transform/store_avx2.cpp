// Store with AVX2: product and sum rounded apart, as in store_scalar.cpp, so that the bits agree.
#include "transform/store_kernels.h"

#if defined(__x86_64__)
#include <type_traits>

#include "base/vectors.h"

namespace fastload {
namespace {

constexpr size_t kPixels = 8;  // of one step; kScalarStore does the rest of a line

__m256 scaled(__m256i bytes, __m256 a, __m256 b) {
  return _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(bytes), a), b);
}

struct Float32 {
  using Element = float;
  static constexpr DType kDType = DType::kFloat32;
  static void store(Element* to, __m256 value) { _mm256_storeu_ps(to, value); }
};

struct Float16 {
  using Element = uint16_t;
  static constexpr DType kDType = DType::kFloat16;
  static void store(Element* to, __m256 value) {
    constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(value, kNearestEven));
  }
};

struct Bfloat16 {
  using Element = uint16_t;
  static constexpr DType kDType = DType::kBfloat16;
  static void store(Element* to, __m256 value) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    const __m256i upper = _mm256_srli_epi32(sum, 16);
    const __m128i words =
        _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), words);
  }
};

template <typename Format>
size_t interleaved(const uint8_t* in, size_t pixels, const StoreScale& scale,
                   typename Format::Element* to) {
  __m256 a[3];
  __m256 b[3];
  for (size_t v = 0; v < 3; ++v) {
    a[v] = _mm256_loadu_ps(scale.a.data() + 8 * v);
    b[v] = _mm256_loadu_ps(scale.b.data() + 8 * v);
  }
  const auto step = [&](size_t value, size_t v) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(in + value));
    return scaled(_mm256_cvtepu8_epi32(bytes), a[v], b[v]);
  };
  size_t i = 0;
  if (std::is_same_v<Format, Float32> && reinterpret_cast<uintptr_t>(to) % 32 == 0) {
    // Past the caches, as in store_avx512.cpp, and ordered by the same instruction.
    for (; i + kPixels <= pixels; i += kPixels) {
      for (size_t v = 0, value = 3 * i; v < 3; ++v, value += 8) {
        _mm256_stream_ps(reinterpret_cast<float*>(to + value), step(value, v));
      }
    }
  }
  for (; i + kPixels <= pixels; i += kPixels) {
    for (size_t v = 0, value = 3 * i; v < 3; ++v, value += 8) {
      Format::store(to + value, step(value, v));
    }
  }
  return i;
}

template <typename Format>
size_t planar(const uint8_t* in, size_t pixels, const StoreScale& scale,
              typename Format::Element* to, size_t plane) {
  const __m256i every_third = _mm256_setr_epi32(0, 3, 6, 9, 0, 3, 6, 9);
  const __m256i low_byte = _mm256_set1_epi32(0xFF);
  size_t i = 0;
  for (; i + kPixels <= pixels; i += kPixels) {
    const auto* from = reinterpret_cast<const __m128i*>(in + 3 * i);
    const auto* next = reinterpret_cast<const __m128i*>(in + 3 * (i + 4));
    const __m256i bytes = _mm256_loadu2_m128i(next, from);
    for (size_t c = 0; c < 3; ++c) {
      const __m256i index = _mm256_add_epi32(every_third, _mm256_set1_epi32(static_cast<int>(c)));
      const __m256i channel = _mm256_and_si256(_mm256_shuffle_epi8(bytes, index), low_byte);
      Format::store(to + c * plane + i,
                    scaled(channel, _mm256_set1_ps(scale.a[c]), _mm256_set1_ps(scale.b[c])));
    }
  }
  return i;
}

template <typename Format>
void line(const uint8_t* in, size_t pixels, const StoreScale& scale, void* out, size_t plane) {
  auto* to = static_cast<typename Format::Element*>(out);
  const size_t done = plane == 0 ? interleaved<Format>(in, pixels, scale, to)
                                 : planar<Format>(in, pixels, scale, to, plane);
  const StoreLine rest = kScalarStore[static_cast<size_t>(Format::kDType)];
  rest(in + 3 * done, pixels - done, scale, to + (plane == 0 ? 3 * done : done), plane);
}

void line_uint8(const uint8_t* in, size_t pixels, const StoreScale& scale, void* out,
                size_t plane) {
  auto* to = static_cast<uint8_t*>(out);
  size_t i = 0;
  if (plane > 0) {
    const __m128i split = _mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, -1, -1, -1, -1);
    for (; i + 16 <= pixels; i += 16) {
      const auto four = [&](size_t k) {  // RRRR GGGG BBBB of pixels i + k ..
        return _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 3 * (i + k))),
                                split);
      };
      const __m128i p0 = four(0);
      const __m128i p1 = four(4);
      const __m128i p2 = four(8);
      const __m128i p3 = four(12);
      const __m128i rg01 = _mm_unpacklo_epi32(p0, p1);
      const __m128i rg23 = _mm_unpacklo_epi32(p2, p3);
      const __m128i b = _mm_unpacklo_epi64(_mm_unpackhi_epi32(p0, p1), _mm_unpackhi_epi32(p2, p3));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm_unpacklo_epi64(rg01, rg23));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + plane + i), _mm_unpackhi_epi64(rg01, rg23));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * plane + i), b);
    }
  }
  kScalarStore[static_cast<size_t>(DType::kUint8)](in + 3 * i, pixels - i, scale, to + i, plane);
}

}  // namespace

const StoreKernels kAvx2Store{line_uint8, line<Float16>, line<Bfloat16>, line<Float32>};

}  // namespace fastload
#endif
