#include "decode/coefficients/segment.h"

#include <algorithm>
#include <bit>

#include "decode/jpeg/idct.h"

namespace fastload {

int coefficient_segment_mcus(const JpegHeader& header) { return kSegmentPixels / header.mcu_width; }

SegmentShape segment_shape(const JpegHeader& header, int mcus) {
  SegmentShape shape;
  for (int c = 0; c < header.component_count; ++c) {
    const JpegComponent& component = header.components[static_cast<size_t>(c)];
    for (int v = 0; v < component.v; ++v) {
      shape.blocks[shape.rows] = static_cast<uint8_t>(mcus * component.h);
      shape.component[shape.rows] = static_cast<uint8_t>(c);
      shape.block_count += shape.blocks[shape.rows];
      ++shape.rows;
    }
  }
  return shape;
}

namespace {

// Values to their places in the groups of the level's inverse DCT.
template <SimdLevel kLevel>
void transform_by_idct(const SegmentBlocks& blocks, size_t first, size_t count,
                       const uint16_t* steps, uint8_t* out, size_t stride) {
  static const IdctKernel kernel = idct_kernel(kLevel);
  static const CoefPlaces places = kernel.places();
  thread_local std::array<int16_t, (kMaxSegmentBlocks + 4) * 64> coefs{};  // left zero
  const uint8_t* const place = places.data();
  for (size_t i = 0; i < count; ++i) {
    int16_t* const block = coefs.data() + kernel.block_offset(static_cast<int>(i));
    block[0] = blocks.dc[first + i];
    const uint64_t lows = blocks.lows[first + i];
    size_t next[2] = {blocks.starts[1][first + i], blocks.starts[0][first + i]};
    for (uint64_t left = blocks.masks[first + i]; left != 0; left &= left - 1) {
      const int k = std::countr_zero(left);
      const auto is_low = static_cast<size_t>(lows >> k & 1);
      const size_t list = 1 - is_low, at = next[is_low]++;
      block[place[k + 1]] = value_at(blocks, list, at);
    }
  }
  kernel.transform(coefs.data(), steps, out, stride, static_cast<int>(count));
}

constexpr SegmentKernels kWords{unpack_segments_words, transform_by_idct<SimdLevel::kScalar>};
#if defined(__x86_64__)
constexpr SegmentKernels kSse4{unpack_segments_words, transform_by_idct<SimdLevel::kSse4>};
constexpr SegmentKernels kAvx2{unpack_segments_avx2, transform_segment_avx2};
constexpr SegmentKernels kAvx512{unpack_segments_avx512, transform_segment_avx512};
#else
constexpr SegmentKernels kNeon{unpack_segments_words, transform_by_idct<SimdLevel::kNeon>};
#endif

}  // namespace

const SegmentKernels& segment_kernels(SimdLevel level) {
#if defined(__x86_64__)
  if (level >= SimdLevel::kAvx512) return kAvx512;
  if (level >= SimdLevel::kAvx2) return kAvx2;
  if (level >= SimdLevel::kSse4) return kSse4;
#else
  if (level >= SimdLevel::kNeon) return kNeon;
#endif
  return kWords;
}

void expand_block(const SegmentBlocks& blocks, size_t block, int16_t* coefs) {
  std::fill_n(coefs, 64, int16_t{0});
  coefs[0] = blocks.dc[block];
  const uint64_t lows = blocks.lows[block];
  for (size_t list = 0; list < 2; ++list) {
    size_t at = blocks.starts[list][block];
    uint64_t left = list == 0 ? lows : blocks.masks[block] & ~lows;
    for (; left != 0; left &= left - 1)
      coefs[std::countr_zero(left)] = value_at(blocks, list, at++);
  }
}

}  // namespace fastload
