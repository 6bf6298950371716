// Segments read with vectors.
#include "decode/coefficients/segment.h"
// Behind the others:
#include "base/highway.h"
#include "decode/coefficients/list_values.h"
#include "decode/coefficients/segment_reader.h"
#if HWY_TARGET == HWY_AVX3
#include "decode/coefficients/fixed_masks_avx512.h"
#include "decode/coefficients/list_levels_avx512.h"
#endif

namespace fastload::FASTLOAD_LEVEL {
namespace {

struct Ops {
  static uint64_t deposit(uint64_t bits, uint64_t mask) {
#if defined(__BMI2__)
    return _pdep_u64(bits, mask);
#else
    // A run of ones from the lowest on needs no search.
    if ((mask & (mask + 1)) == 0) return bits & mask;
    uint64_t result = 0;
    for (; mask != 0; mask &= mask - 1, bits >>= 1) {
      result |= mask & (~mask + 1) & (~(bits & 1) + 1);
    }
    return result;
#endif
  }
  static void add_offsets(uint64_t offsets, int16_t least, int16_t* to) {
    const hn::CappedTag<int16_t, 4> d;
    const auto lanes = hn::BitCast(d, hn::Set(hn::CappedTag<uint64_t, 1>(), offsets));
    hn::StoreU(hn::Add(lanes, hn::Set(d, least)), d, to);
  }
#if HWY_TARGET == HWY_AVX3
  static constexpr bool kBothWide = false;
  static void copy(const uint8_t* data, size_t at, size_t words, uint64_t* plane) {
    Avx512Words::copy(data, at, words, plane);
  }
  static bool fixed_masks(BitPlace& place, const SegmentCoding& coding, const SegmentShape& shape,
                          SegmentBlocks& blocks) {
    return FixedMasks(coding, blocks).read(place, shape);
  }
  static bool lists(BitPlace& place, const size_t* counts, const std::array<uint8_t, 2>& rice,
                    ListBytes* lists) {
    for (size_t i = 0; i < 2; ++i) {
      if (counts[i] == 0) continue;
      const LevelsRead found = ListLevels::read(place, counts[i], rice[i], lists[i]);
      if (found == LevelsRead::kDamaged) return false;
      if (found == LevelsRead::kDone) continue;
      ValuePlanes planes;
      if (!read_planes<Ops>(place, counts[i], rice[i], planes)) return false;
      lists[i].is_wide = is_wide_list(planes);
      store_values(planes, lists[i]);
    }
    return true;
  }
#else
  static constexpr bool kBothWide = true;
  static void copy(const uint8_t* data, size_t at, size_t words, uint64_t* plane) {
    for (size_t w = 0; w < words; ++w) plane[w] = whole_word_at(data, at + 64 * w);
  }
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
      if (!read_planes<Ops>(place, counts[i], rice[i], planes[i])) return false;
      lists[i].is_wide = is_wide_list(planes[i]);
    }
    for (size_t i = 0; i < 2; ++i) store_values(planes[i], lists[i]);
    return true;
  }
  static void extend(const int8_t* low, int8_t* high) {
    for (size_t i = 0; i < 64; i += kLanes) {
      hn::StoreU(hn::BroadcastSignBit(hn::LoadU(kSignedBytes, low + i)), kSignedBytes, high + i);
    }
  }
#endif
};

}  // namespace

bool unpack_segments(const SegmentCoding& coding, const SegmentSource* sources, size_t count,
                     SegmentBlocks* blocks) {
  return read_segments<Ops>(coding, sources, count, blocks);
}

}  // namespace fastload::FASTLOAD_LEVEL
