#if defined(__x86_64__)

#include "base/vectors.h"
#include "decode/coefficients/list_values_avx2.h"

namespace fastload {
namespace {

struct Avx2Ops {
  static constexpr bool kBothWide = true;
  static bool fixed_masks(BitPlace& place, const SegmentCoding& coding, const SegmentShape& shape,
                          SegmentBlocks& blocks) {
    return read_fixed_masks(place, coding, shape, blocks);
  }
  // The planes of both first: what was stored just now, in parts, is slow to read.
  static bool lists(BitPlace& place, const size_t* counts, const std::array<uint8_t, 2>& rice,
                    ListBytes* lists) {
    ValuePlanes planes[2];
    for (size_t i = 0; i < 2; ++i) {
      planes[i].words = 0;
      if (counts[i] == 0) continue;
      if (!read_planes<Avx2Ops>(place, counts[i], rice[i], planes[i])) return false;
      lists[i].is_wide = is_wide_list(planes[i]);
    }
    for (size_t i = 0; i < 2; ++i) store_values(planes[i], lists[i]);
    return true;
  }
  static uint64_t deposit(uint64_t bits, uint64_t mask) { return _pdep_u64(bits, mask); }
  static void add_offsets(uint64_t offsets, int16_t least, int16_t* to) {
    const __m128i sum =
        _mm_add_epi16(_mm_cvtsi64_si128(static_cast<int64_t>(offsets)), _mm_set1_epi16(least));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), sum);
  }
  static void extend(const int8_t* low, int8_t* high) {
    for (int half = 0; half < 2; ++half) {
      const __m256i values = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(low + 32 * half));
      store32(high + 32 * half, _mm256_cmpgt_epi8(_mm256_setzero_si256(), values));
    }
  }
  static void copy(const uint8_t* data, size_t at, size_t words, uint64_t* plane) {
    for (size_t w = 0; w < words; ++w) plane[w] = whole_word_at(data, at + 64 * w);
  }

 private:
  static void store_values(const ValuePlanes& planes, const ListBytes& list) {
    for (size_t w = 0; w < planes.words; w += kGroupWords) {
      if (list.is_wide) {
        store_values16(planes, w, list.low + 64 * w, list.high + 64 * w);
      } else {
        store_values8(planes, w, list.low + 64 * w);
      }
    }
  }
};

}  // namespace

bool unpack_segments_avx2(const SegmentCoding& coding, const SegmentSource* sources, size_t count,
                          SegmentBlocks* blocks) {
  return unpack_segments<Avx2Ops>(coding, sources, count, blocks);
}

}  // namespace fastload

#endif
