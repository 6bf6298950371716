#if defined(__x86_64__)

#include <array>

#include "base/vectors.h"
#include "decode/jpeg/color_simd.h"

namespace fastload {
namespace {

// Which byte of (r, g) and of b becomes each of the 192 output bytes.
struct RgbOrder {
  alignas(64) std::array<uint8_t, 192> from_rg{};
  alignas(64) std::array<uint8_t, 192> from_b{};
  std::array<uint64_t, 3> is_b{};
};

constexpr RgbOrder kRgbOrder = [] {
  RgbOrder order;
  for (size_t i = 0; i < 192; ++i) {
    const size_t pixel = i / 3, channel = i % 3;
    order.from_rg[i] = static_cast<uint8_t>(channel == 1 ? 64 + pixel : pixel);
    order.from_b[i] = static_cast<uint8_t>(pixel);
    if (channel == 2) order.is_b[i / 64] |= uint64_t{1} << (i % 64);
  }
  return order;
}();

struct V512 {
  using T = __m512i;
  static constexpr int kLanes = 32;
  static T load(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static void store(uint8_t* p, T v) { _mm512_storeu_si512(p, v); }
  static T widen(const uint8_t* p) {
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void narrow_store(uint8_t* p, T v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi16_epi8(v));
  }
  static T set(int v) { return _mm512_set1_epi16(static_cast<int16_t>(v)); }
  static T add(T a, T b) { return _mm512_add_epi16(a, b); }
  static T sub(T a, T b) { return _mm512_sub_epi16(a, b); }
  static T or_bits(T a, T b) { return _mm512_or_si512(a, b); }
  template <int kCount>
  static T shift_left(T a) {
    return _mm512_slli_epi16(a, kCount);
  }
  template <int kCount>
  static T shift_right(T a) {
    return _mm512_srli_epi16(a, kCount);
  }
  static T mul_round(T a, T b) { return _mm512_mulhrs_epi16(a, b); }
  static T mul_pairs_shift16(T a, T b, int16_t ka, int16_t kb, int32_t rounding) {
    const T k = _mm512_unpacklo_epi16(_mm512_set1_epi16(ka), _mm512_set1_epi16(kb));
    const T start = _mm512_set1_epi32(rounding);
    const T low = _mm512_dpwssd_epi32(start, _mm512_unpacklo_epi16(a, b), k);
    const T high = _mm512_dpwssd_epi32(start, _mm512_unpackhi_epi16(a, b), k);
    return _mm512_packs_epi32(_mm512_srai_epi32(low, 16), _mm512_srai_epi32(high, 16));
  }
  static T unpack_low8(T a, T b) { return _mm512_unpacklo_epi8(a, b); }
  static T unpack_high8(T a, T b) { return _mm512_unpackhi_epi8(a, b); }
  static T pack(T a, T b) { return _mm512_packus_epi16(a, b); }
  static void store_rgb(uint8_t* p, T r, T g, T b) {
    for (size_t i = 0; i < 3; ++i) {
      const T rg = _mm512_permutex2var_epi8(r, _mm512_load_si512(&kRgbOrder.from_rg[64 * i]), g);
      const T index = _mm512_load_si512(&kRgbOrder.from_b[64 * i]);
      store(p + 64 * i, _mm512_mask_permutexvar_epi8(rg, kRgbOrder.is_b[i], index, b));
    }
  }
};

}  // namespace

const ColorKernels kColorAvx512{h2v1_rows<V512>, h2v2_rows<V512>, h1v2_rows<V512>, ycc_rows<V512>,
                                gray_rows<V512>};

}  // namespace fastload

#endif
