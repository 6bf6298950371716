#if defined(__x86_64__)

#include <algorithm>
#include <array>

#include "base/vectors.h"
#include "transcode/block_lists_loop.h"

namespace fastload {
namespace {

// For each mask of eight 16-bit lanes the bytes of those that it has, one after another.
constexpr std::array<std::array<uint8_t, 16>, 256> kCompress = [] {
  std::array<std::array<uint8_t, 16>, 256> all{};
  for (size_t mask = 0; mask < 256; ++mask) {
    size_t at = 0;
    for (size_t lane = 0; lane < 8; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      all[mask][at++] = static_cast<uint8_t>(2 * lane);
      all[mask][at++] = static_cast<uint8_t>(2 * lane + 1);
    }
  }
  return all;
}();

}  // namespace

void list_blocks_avx2(int16_t* blocks, size_t count, ListEnd& end) {
  size_t used = end.used;
  const __m256i zero = _mm256_setzero_si256();
  __m256i largest = zero;
  for (size_t i = 0; i < count; ++i, blocks += 64) {
    *end.dc++ = blocks[0];
    blocks[0] = 0;
    uint64_t mask = 0;
    for (size_t part = 0; part < 2; ++part) {
      auto* const at = reinterpret_cast<__m256i*>(blocks + 32 * part);
      const __m256i a = _mm256_loadu_si256(at), b = _mm256_loadu_si256(at + 1);
      largest =
          _mm256_max_epu16(largest, _mm256_max_epu16(_mm256_abs_epi16(a), _mm256_abs_epi16(b)));
      // Saturates: not to zero.
      const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0xD8);
      const auto zeros =
          static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, zero)));
      mask |= uint64_t{~zeros} << (32 * part);
    }
    *end.masks++ = mask;
    *end.starts++ = used;
    auto* from = reinterpret_cast<__m128i*>(blocks);
    for (uint64_t left = mask; left != 0; left >>= 8, ++from) {
      const __m128i order =
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(kCompress[left & 0xFF].data()));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(end.values + used),
                       _mm_shuffle_epi8(_mm_loadu_si128(from), order));
      used += static_cast<size_t>(std::popcount(left & 0xFF));
    }
    for (size_t part = 0; part < 4; ++part) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(blocks) + part, zero);
    }
  }
  end.used = used;
  alignas(32) std::array<uint16_t, 16> all;
  _mm256_store_si256(reinterpret_cast<__m256i*>(all.data()), largest);
  for (const uint16_t one : all) end.largest = std::max(end.largest, one);
}

void list_segment_avx2(const SegmentBlocks& blocks, size_t count, ListEnd& end) {
  list_segment(blocks, count, end);
}

}  // namespace fastload

#endif
