#if defined(__x86_64__)

#include "decode/jpeg/idct_pairs_avx512.h"

namespace fastload {
namespace {

// For any coefficients.
[[gnu::noinline]] void transform_exactly(const __m512i* pairs, const uint16_t* steps, uint8_t* out,
                                         size_t stride) {
  __m512i x[8], step_rows[8];
  for (size_t row = 0; row < 8; ++row) step_rows[row] = V512::repeat_lane(steps + row * 8);
  rows_of_pairs(pairs, x);
  transform_rows<V512>(x, step_rows, out, stride);
}

}  // namespace

void idct_avx512(int16_t* coefs, const uint16_t* steps, uint8_t* out, size_t stride, int count) {
  __m512i pair_steps[8];
  load_pair_steps(steps, pair_steps);
  for (int block = 0; block < count; block += V512::kBlocks) {
    __m512i pairs[8], x[8], rows[8];
    for (size_t i = 0; i < 8; ++i) {
      int16_t* const at = coefs + i * 8 * V512::kBlocks;
      pairs[i] = V512::load(at);
      x[i] = _mm512_mullo_epi16(pairs[i], pair_steps[i]);
    }
    transform_down(x, rows);
    if (within_15_bits(rows)) [[likely]] {
      transform_across(rows, out, stride);
    } else {
      for (size_t i = 0; i < 8; ++i) pairs[i] = V512::load(coefs + i * 8 * V512::kBlocks);
      transform_exactly(pairs, steps, out, stride);
    }
    for (size_t i = 0; i < 8; ++i) V512::store(coefs + i * 8 * V512::kBlocks, V512::zero());
    coefs += V512::kBlocks * 64;
    out += V512::kBlocks * 8;
  }
}

}  // namespace fastload

#endif
