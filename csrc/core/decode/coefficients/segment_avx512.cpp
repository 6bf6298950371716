#if defined(__x86_64__)

#include "base/vectors.h"
#include "decode/coefficients/fixed_masks_avx512.h"
#include "decode/coefficients/list_levels_avx512.h"
#include "decode/coefficients/segment_reader.h"

namespace fastload {
namespace {

struct Avx512Ops : Avx512Words {
  static constexpr bool kBothWide = false;
  static bool fixed_masks(BitPlace& place, const SegmentCoding& coding, const SegmentShape& shape,
                          SegmentBlocks& blocks) {
    return FixedMasks(coding, blocks).read(place, shape);
  }
  static bool list(BitPlace& place, size_t count, int rice, ListBytes& list) {
    const LevelsRead found = ListLevels::read(place, count, rice, list);
    if (found != LevelsRead::kTooMany) return found == LevelsRead::kDone;
    return read_list<Avx512Ops>(place, count, rice, list);
  }
  static uint64_t deposit(uint64_t bits, uint64_t mask) { return _pdep_u64(bits, mask); }
  static void add_offsets(uint64_t offsets, int16_t least, int16_t* to) {
    const __m128i sum =
        _mm_add_epi16(_mm_cvtsi64_si128(static_cast<int64_t>(offsets)), _mm_set1_epi16(least));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), sum);
  }
  static void values8(const ValuePlanes& planes, size_t w, int8_t* to) {
    __m512i sum = _mm512_set1_epi8(1);
    const auto add = [&sum](uint64_t plane, int shift) {
      sum = _mm512_mask_add_epi8(sum, plane, sum, _mm512_set1_epi8(static_cast<char>(1 << shift)));
    };
    add_planes(planes, w, add);
    const __m512i zero = _mm512_setzero_si512();
    _mm512_storeu_si512(to, _mm512_mask_sub_epi8(sum, planes.sign[w], zero, sum));
  }
  static void values16(const ValuePlanes& planes, size_t w, int8_t* low, int8_t* high) {
    __m512i halves[2];
    for (int half = 0; half < 2; ++half) {
      __m512i sum = _mm512_set1_epi16(1);
      const auto add = [&sum, half](uint64_t plane, int shift) {
        sum = _mm512_mask_add_epi16(sum, static_cast<__mmask32>(plane >> (32 * half)), sum,
                                    _mm512_set1_epi16(static_cast<int16_t>(1 << shift)));
      };
      add_planes(planes, w, add);
      const auto sign = static_cast<__mmask32>(planes.sign[w] >> (32 * half));
      halves[half] = _mm512_mask_sub_epi16(sum, sign, _mm512_setzero_si512(), sum);
    }
    // The even bytes of both halves, and the odd ones.
    alignas(64) static constexpr std::array<uint8_t, 64> kEven = [] {
      std::array<uint8_t, 64> places{};
      for (size_t i = 0; i < 64; ++i) places[i] = static_cast<uint8_t>(2 * i);
      return places;
    }();
    const __m512i even = _mm512_load_si512(kEven.data());
    const __m512i odd = _mm512_add_epi8(even, _mm512_set1_epi8(1));
    _mm512_storeu_si512(low, _mm512_permutex2var_epi8(halves[0], even, halves[1]));
    _mm512_storeu_si512(high, _mm512_permutex2var_epi8(halves[0], odd, halves[1]));
  }

 private:
  template <class Add>
  static void add_planes(const ValuePlanes& planes, size_t w, Add add) {
    for (int bit = 0; bit < planes.rice; ++bit) add(planes.raw[static_cast<size_t>(bit)][w], bit);
    for (int bit = 0; bit < planes.deepest; ++bit) {
      const auto index = static_cast<size_t>(bit);
      add(planes.deep[index + 1][w], planes.rice + bit);
      add(planes.low[index][w], planes.rice + bit);
    }
  }
};

}  // namespace

bool unpack_segments_avx512(const SegmentCoding& coding, const SegmentSource* sources, size_t count,
                            SegmentBlocks* blocks) {
  return unpack_segments<Avx512Ops>(coding, sources, count, blocks);
}

}  // namespace fastload

#endif
