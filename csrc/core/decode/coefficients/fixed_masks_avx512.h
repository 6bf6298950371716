// The masks of a segment of form "fast", a row of blocks at a time. Part of segment_vector.cpp, for AVX-512.
#pragma once

#include "decode/coefficients/segment_reader.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

// Each of eight 64-bit lanes: the sum of those up to it.
inline __m512i running_sums(__m512i lanes) {
  const __m512i zero = _mm512_setzero_si512();
  lanes = _mm512_add_epi64(lanes, _mm512_alignr_epi64(lanes, zero, 7));
  lanes = _mm512_add_epi64(lanes, _mm512_alignr_epi64(lanes, zero, 6));
  return _mm512_add_epi64(lanes, _mm512_alignr_epi64(lanes, zero, 4));
}

// Where each of a row's masks begins behind the bits at `at`, and how many bits it has.
struct MaskLanes {
  __m512i ends, lengths;
};

class FixedMasks {
 public:
  FixedMasks(const SegmentCoding& coding, SegmentBlocks& blocks)
      : coding_(coding),
        blocks_(blocks),
        shorter_(_mm512_cvtepu8_epi64(load8(coding.mask_lengths.data()))),
        longer_(_mm512_cvtepu8_epi64(load8(coding.mask_lengths.data() + 8))) {}

  bool read(BitPlace& place, const SegmentShape& shape) {
    if (!place.has(4 * shape.block_count)) return false;
    size_t classes_at = place.at, block = 0;
    place.at += 4 * shape.block_count;
    for (size_t row = 0; row < shape.rows; ++row) {
      const size_t count = shape.blocks[row];
      const auto used = static_cast<__mmask8>((1u << count) - 1);
      const MaskLanes lanes = lanes_of(word_at(place.data, classes_at), used);
      const size_t bits = last_of(lanes.ends);
      if (!place.has(bits)) return false;
      split(masks_at(place, lanes), coding_.low[shape.component[row] > 0 ? 1 : 0], block);
      place.at += bits;
      classes_at += 4 * count;
      block += count;
    }
    const uint64_t counts = last_of(counted_);
    blocks_.starts[0][block] = static_cast<uint16_t>(counts);
    blocks_.starts[1][block] = static_cast<uint16_t>(counts >> 32);
    return true;
  }

 private:
  static __m128i load8(const uint8_t* from) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  }
  static uint64_t last_of(__m512i lanes) {
    const __m128i upper = _mm512_extracti64x2_epi64(lanes, 3);
    return static_cast<uint64_t>(_mm_extract_epi64(upper, 1));
  }

  // `classes` has four bits for each block.
  [[nodiscard]] MaskLanes lanes_of(uint64_t classes, __mmask8 used) const {
    const __m512i nibbles =
        _mm512_and_si512(_mm512_srlv_epi64(_mm512_set1_epi64(static_cast<int64_t>(classes)),
                                           _mm512_setr_epi64(0, 4, 8, 12, 16, 20, 24, 28)),
                         _mm512_set1_epi64(15));
    const __m512i lengths = _mm512_maskz_permutex2var_epi64(used, shorter_, nibbles, longer_);
    return {running_sums(lengths), lengths};
  }

  // Eight masks have at most 504 bits: all of them, from the byte that the first begins in, are in
  // one vector.
  static __m512i masks_at(const BitPlace& place, const MaskLanes& lanes) {
    const __m512i data = _mm512_loadu_si512(place.data + place.at / 8);
    const __m512i begins = _mm512_add_epi64(_mm512_sub_epi64(lanes.ends, lanes.lengths),
                                            _mm512_set1_epi64(static_cast<int64_t>(place.at % 8)));
    const __m512i first_byte = _mm512_shuffle_epi8(_mm512_srli_epi64(begins, 3),
                                                   _mm512_set4_epi32(0x08080808, 0x08080808, 0, 0));
    const __m512i bytes = _mm512_add_epi8(first_byte, _mm512_set1_epi64(0x0706050403020100));
    const __m512i words = _mm512_permutexvar_epi8(bytes, data);
    const __m512i ninths = _mm512_maskz_permutexvar_epi8(
        0x0101010101010101, _mm512_add_epi8(first_byte, _mm512_set1_epi8(8)), data);
    const __m512i masks =
        _mm512_shrdv_epi64(words, ninths, _mm512_and_si512(begins, _mm512_set1_epi64(7)));
    const __m512i one = _mm512_set1_epi64(1);
    const __m512i longest = _mm512_sub_epi64(_mm512_sllv_epi64(one, lanes.lengths), one);
    return _mm512_and_si512(masks, longest);
  }

  // `masks` without the place of DC, of the blocks from number `block` on.
  void split(__m512i masks, const std::array<uint64_t, kMaskBytes + 1>& positions, size_t block) {
    const __m512i free = _mm512_lzcnt_epi64(masks);
    const __m512i counts = _mm512_srli_epi64(_mm512_sub_epi64(_mm512_set1_epi64(64 + 7), free), 3);
    const __m512i places =
        _mm512_permutex2var_epi64(_mm512_loadu_si512(positions.data()), counts,
                                  _mm512_set1_epi64(static_cast<int64_t>(positions[kMaskBytes])));
    masks = _mm512_slli_epi64(masks, 1);
    const __m512i lows = _mm512_and_si512(masks, places);
    _mm512_storeu_si512(&blocks_.masks[block], masks);
    _mm512_storeu_si512(&blocks_.lows[block], lows);
    // How many values are in list A, and 32 bits higher in B.
    const __m512i both = _mm512_or_si512(
        _mm512_popcnt_epi64(lows),
        _mm512_slli_epi64(_mm512_popcnt_epi64(_mm512_andnot_si512(places, masks)), 32));
    const __m512i sums = running_sums(both);
    const __m512i starts = _mm512_add_epi64(counted_, _mm512_sub_epi64(sums, both));
    store16(&blocks_.starts[0][block], starts);
    store16(&blocks_.starts[1][block], _mm512_srli_epi64(starts, 32));
    counted_ = _mm512_add_epi64(counted_, _mm512_permutexvar_epi64(_mm512_set1_epi64(7), sums));
  }
  static void store16(uint16_t* to, __m512i lanes) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi64_epi16(lanes));
  }

  const SegmentCoding& coding_;
  SegmentBlocks& blocks_;
  __m512i shorter_, longer_;                  // the classes' lengths
  __m512i counted_ = _mm512_setzero_si512();  // values of the blocks before, in every lane
};

}  // namespace
}  // namespace fastload::FASTLOAD_LEVEL
