#include "transcode/segment_writer.h"

#include "transcode/segment_packer.h"

namespace fastload {
namespace {

// For any CPU.
struct WordOps {
  static constexpr bool kCompresses = false;
  static uint64_t extract(uint64_t bits, uint64_t mask) {
    if ((mask & (mask + 1)) == 0) return bits & mask;
    uint64_t result = 0;
    for (int at = 0; mask != 0; mask &= mask - 1, ++at) {
      result |= (bits >> std::countr_zero(mask) & 1) << at;
    }
    return result;
  }
  template <class Value>
  static uint64_t with_bit(const Value* values, int bit) {
    uint64_t word = 0;
    for (int i = 0; i < 64; ++i) word |= uint64_t{values[i] >> bit & 1u} << i;
    return word;
  }
  template <class Value>
  static uint64_t at_least(const Value* values, int limit) {
    uint64_t word = 0;
    for (int i = 0; i < 64; ++i) word |= uint64_t{values[i] >= limit} << i;
    return word;
  }
};

}  // namespace

MaskClasses::MaskClasses(const SegmentCoding& coding) : lengths(coding.mask_lengths) {
  for (size_t bits = 0; bits < 64; ++bits) {
    size_t best = kMaskClasses;
    for (size_t i = 0; i < kMaskClasses; ++i) {
      if (lengths[i] < bits) continue;
      if (best == kMaskClasses || lengths[i] < lengths[best]) best = i;
    }
    of[bits] = static_cast<uint8_t>(best);
  }
}

size_t pack_segment_words(const SegmentCoding& coding, const MaskClasses& classes,
                          const SegmentShape& shape, const ListedSegment& segment, uint8_t* to) {
  return pack_segment_by<WordOps>(coding, classes, shape, segment, to);
}

PackSegment pack_segment(SimdLevel level) {
#if defined(__x86_64__)
  if (level >= SimdLevel::kAvx512) return pack_segment_avx512;
  if (level >= SimdLevel::kAvx2) return pack_segment_avx2;
#endif
  static_cast<void>(level);
  return pack_segment_words;
}

}  // namespace fastload
