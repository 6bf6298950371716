// Store with AVX-512: product and sum rounded apart, as in store_scalar.cpp, so that the bits
// agree.
#include "transform/store_kernels.h"

#if defined(__x86_64__)
#include <cstring>
#include <type_traits>

#include "base/vectors.h"

namespace fastload {
namespace {

__m512 scaled(__m512i bytes, __m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(bytes), a), b);
}

// Each format stores one vector of 16 values: whole, or the lanes in `mask` (slower on some
// machines).
struct Float32 {
  using Element = float;
  static void store(Element* to, __m512 value) { _mm512_storeu_ps(to, value); }
  static void store(Element* to, __mmask16 mask, __m512 value) {
    _mm512_mask_storeu_ps(to, mask, value);
  }
};

template <typename Convert>
struct HalfWidth {
  using Element = uint16_t;
  static void store(Element* to, __m512 value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), Convert::words(value));
  }
  static void store(Element* to, __mmask16 mask, __m512 value) {
    _mm256_mask_storeu_epi16(to, mask, Convert::words(value));
  }
};

struct ToFloat16 {
  static __m256i words(__m512 value) {
    return _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

struct ToBfloat16 {
  static __m256i words(__m512 value) {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    const __m512i upper_words =
        _mm512_setr_epi32(0x00030001, 0x00070005, 0x000B0009, 0x000F000D, 0x00130011, 0x00170015,
                          0x001B0019, 0x001F001D, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_castsi512_si256(_mm512_permutexvar_epi16(upper_words, rounded));
  }
};

using Float16 = HalfWidth<ToFloat16>;
using Bfloat16 = HalfWidth<ToBfloat16>;

template <typename Format>
void store(typename Format::Element* to, size_t room, __m512 value) {
  room >= 16 ? Format::store(to, value)
             : Format::store(to, static_cast<__mmask16>((1u << room) - 1), value);
}

template <typename Format>
void interleaved(const uint8_t* in, size_t values, const StoreScale& scale,
                 typename Format::Element* to) {
  __m512 a[3];
  __m512 b[3];
  for (size_t v = 0; v < 3; ++v) {
    a[v] = _mm512_loadu_ps(scale.a.data() + 16 * v);
    b[v] = _mm512_loadu_ps(scale.b.data() + 16 * v);
  }
  const auto step = [&](size_t i, size_t v) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
    return scaled(_mm512_cvtepu8_epi32(bytes), a[v], b[v]);
  };
  size_t i = 0;
  if (std::is_same_v<Format, Float32> && reinterpret_cast<uintptr_t>(to) % 64 == 0) {
    // Past the caches: the batch is read by others, much later, and a line that is written whole
    // need not be read first. The locked instruction in Batch::finish() orders these stores.
    for (; i + 48 <= values; i += 48) {
      for (size_t v = 0; v < 3; ++v) {
        _mm512_stream_ps(reinterpret_cast<float*>(to + i + 16 * v), step(i + 16 * v, v));
      }
    }
  }
  for (; i + 48 <= values; i += 48) {
    for (size_t v = 0; v < 3; ++v) Format::store(to + i + 16 * v, step(i + 16 * v, v));
  }
  for (size_t v = 0; i < values; i += 16, ++v) store<Format>(to + i, values - i, step(i, v));
}

template <typename Format>
void planar(const uint8_t* in, size_t pixels, const StoreScale& scale, typename Format::Element* to,
            size_t plane) {
  const __m512i every_third =
      _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45);
  constexpr __mmask64 kLowBytes = 0x1111111111111111;
  for (size_t i = 0; i < pixels; i += 16) {
    const __m512i bytes = _mm512_loadu_si512(in + 3 * i);
    for (size_t c = 0; c < 3; ++c) {
      const __m512i index = _mm512_add_epi32(every_third, _mm512_set1_epi32(static_cast<int>(c)));
      const __m512i channel = _mm512_maskz_permutexvar_epi8(kLowBytes, index, bytes);
      store<Format>(to + c * plane + i, pixels - i,
                    scaled(channel, _mm512_set1_ps(scale.a[c]), _mm512_set1_ps(scale.b[c])));
    }
  }
}

template <typename Format>
void line(const uint8_t* in, size_t pixels, const StoreScale& scale, void* out, size_t plane) {
  auto* to = static_cast<typename Format::Element*>(out);
  plane == 0 ? interleaved<Format>(in, 3 * pixels, scale, to)
             : planar<Format>(in, pixels, scale, to, plane);
}

void line_uint8(const uint8_t* in, size_t pixels, const StoreScale&, void* out, size_t plane) {
  auto* to = static_cast<uint8_t*>(out);
  if (plane == 0) {
    std::memcpy(to, in, 3 * pixels);
    return;
  }
  const __m512i lane = _mm512_mullo_epi16(
      _mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13,
                       12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
      _mm512_set1_epi16(6));  // 3 * (2 k), the byte of pixel 2 k
  const __m512i every_third =
      _mm512_or_si512(lane, _mm512_slli_epi16(_mm512_add_epi16(lane, _mm512_set1_epi16(3)), 8));
  for (size_t i = 0; i < pixels; i += 32) {
    const __m512i low = _mm512_loadu_si512(in + 3 * i);
    const size_t rest = pixels - i;
    const __mmask64 more = rest >= 32 ? 0xFFFFFFFF : rest <= 21 ? 0 : (1u << (3 * rest - 64)) - 1;
    const __m512i high = _mm512_maskz_loadu_epi8(more, in + 3 * i + 64);
    const __mmask32 mask = rest >= 32 ? 0xFFFFFFFF : (1u << rest) - 1;
    for (size_t c = 0; c < 3; ++c) {
      const __m512i index = _mm512_add_epi8(every_third, _mm512_set1_epi8(static_cast<char>(c)));
      const __m512i channel = _mm512_permutex2var_epi8(low, index, high);
      auto* target = to + c * plane + i;
      if (rest >= 32) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), _mm512_castsi512_si256(channel));
      } else {
        _mm256_mask_storeu_epi8(target, mask, _mm512_castsi512_si256(channel));
      }
    }
  }
}

}  // namespace

const StoreKernels kAvx512Store{line_uint8, line<Float16>, line<Bfloat16>, line<Float32>};

}  // namespace fastload
#endif
