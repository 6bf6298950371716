#if defined(__x86_64__)

#include <array>

#include "base/vectors.h"
#include "decode/jpeg/color_simd.h"

namespace fastload {
namespace {

// pshufb indices that spread 16 samples of a channel over 48 bytes of pixels; 0x80 leaves a zero.
struct RgbSpread {
  alignas(16) std::array<std::array<std::array<uint8_t, 16>, 3>, 3> index{};  // [part][channel]
};

constexpr RgbSpread kSpread = [] {
  RgbSpread spread;
  for (size_t i = 0; i < 48; ++i) {
    for (size_t channel = 0; channel < 3; ++channel) {
      spread.index[i / 16][channel][i % 16] = static_cast<uint8_t>(i % 3 == channel ? i / 3 : 0x80);
    }
  }
  return spread;
}();

struct V256 {
  using T = __m256i;
  static constexpr int kLanes = 16;
  static T load(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const T*>(p)); }
  static void store(uint8_t* p, T v) { _mm256_storeu_si256(reinterpret_cast<T*>(p), v); }
  static T widen(const uint8_t* p) {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static void narrow_store(uint8_t* p, T v) {
    const T packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(v, v), _MM_SHUFFLE(3, 1, 2, 0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
  }
  static T set(int v) { return _mm256_set1_epi16(static_cast<int16_t>(v)); }
  static T add(T a, T b) { return _mm256_add_epi16(a, b); }
  static T sub(T a, T b) { return _mm256_sub_epi16(a, b); }
  static T or_bits(T a, T b) { return _mm256_or_si256(a, b); }
  template <int kCount>
  static T shift_left(T a) {
    return _mm256_slli_epi16(a, kCount);
  }
  template <int kCount>
  static T shift_right(T a) {
    return _mm256_srli_epi16(a, kCount);
  }
  static T mul_round(T a, T b) { return _mm256_mulhrs_epi16(a, b); }
  static T mul_pairs_shift16(T a, T b, int16_t ka, int16_t kb, int32_t rounding) {
    const T k = _mm256_unpacklo_epi16(_mm256_set1_epi16(ka), _mm256_set1_epi16(kb));
    const T start = _mm256_set1_epi32(rounding);
    const T low = _mm256_add_epi32(start, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), k));
    const T high = _mm256_add_epi32(start, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), k));
    return _mm256_packs_epi32(_mm256_srai_epi32(low, 16), _mm256_srai_epi32(high, 16));
  }
  static T unpack_low8(T a, T b) { return _mm256_unpacklo_epi8(a, b); }
  static T unpack_high8(T a, T b) { return _mm256_unpackhi_epi8(a, b); }
  static T pack(T a, T b) { return _mm256_packus_epi16(a, b); }
  static T spread(size_t part, size_t channel, T samples) {
    const auto* index = reinterpret_cast<const __m128i*>(kSpread.index[part][channel].data());
    return _mm256_shuffle_epi8(samples, _mm256_broadcastsi128_si256(_mm_load_si128(index)));
  }
  static T join(size_t part, T r, T g, T b) {
    return _mm256_or_si256(_mm256_or_si256(spread(part, 0, r), spread(part, 1, g)),
                           spread(part, 2, b));
  }
  static void store_rgb(uint8_t* p, T r, T g, T b) {
    const T first = join(0, r, g, b), second = join(1, r, g, b), third = join(2, r, g, b);
    store(p, _mm256_permute2x128_si256(first, second, 0x20));
    store(p + 32, _mm256_permute2x128_si256(third, first, 0x30));
    store(p + 64, _mm256_permute2x128_si256(second, third, 0x31));
  }
};

}  // namespace

const ColorKernels kColorAvx2{h2v1_rows<V256>, h2v2_rows<V256>, h1v2_rows<V256>, ycc_rows<V256>,
                              gray_rows<V256>};

}  // namespace fastload

#endif
