#if defined(__x86_64__)

#include "base/vectors.h"
#include "transcode/coding_kernels_loop.h"

namespace fastload {
namespace {

// Before a sum of 16 bits is full: a value below 128 takes at most 16 bits.
constexpr size_t kMostPending = 4000;

// For each Rice parameter the bits of the magnitudes 0 to 127.
alignas(64) constexpr std::array<std::array<uint8_t, 128>, kRices> kBits = [] {
  std::array<std::array<uint8_t, 128>, kRices> bits{};
  for (size_t rice = 0; rice < kRices; ++rice) {
    for (size_t magnitude = 0; magnitude < 128; ++magnitude) {
      bits[rice][magnitude] = static_cast<uint8_t>(kKnownBits[magnitude][rice]);
      if (bits[rice][magnitude] > 16) throw "a sum may overflow";
    }
  }
  return bits;
}();

void settle_context(ValueCosts::Pending& pending, ValueCosts::Places& places) {
  for (size_t k = 0; k < 64; ++k) {
    for (size_t rice = 0; rice < kRices; ++rice) places[k][rice] += pending.sums[rice][k];
  }
  pending = {};
}

// Block by block: each value's magnitude at its place, and its bits by look-up.
void count(const uint64_t* masks, const int16_t* values, size_t blocks, size_t kind,
           ValueCosts& costs) {
  __m512i low_bits[kRices], high_bits[kRices];
  for (size_t rice = 0; rice < kRices; ++rice) {
    low_bits[rice] = _mm512_load_si512(kBits[rice].data());
    high_bits[rice] = _mm512_load_si512(kBits[rice].data() + 64);
  }
  for (size_t i = 0; i < blocks; ++i) {
    const uint64_t mask = masks[i];
    const int16_t* const from = values;
    values += std::popcount(mask);
    const size_t context = context_of(mask);
    const __m256i first = _mm512_cvtusepi16_epi8(_mm512_abs_epi16(_mm512_loadu_si512(from)));
    const __m256i second = _mm512_cvtusepi16_epi8(_mm512_abs_epi16(_mm512_loadu_si512(from + 32)));
    const __m512i magnitudes = _mm512_maskz_expand_epi8(
        mask, _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1));
    if (_mm512_movepi8_mask(magnitudes) != 0) {
      count_block(mask, from, costs.bits[kind][context]);
      continue;
    }
    ValueCosts::Pending& pending = costs.pending[kind][context];
    for (size_t rice = 0; rice < kRices; ++rice) {
      const __m512i bits = _mm512_permutex2var_epi8(low_bits[rice], magnitudes, high_bits[rice]);
      uint16_t* const sums = pending.sums[rice].data();
      const __m512i low = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(bits));
      const __m512i high = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(bits, 1));
      _mm512_store_si512(sums, _mm512_add_epi16(_mm512_load_si512(sums), low));
      _mm512_store_si512(sums + 32, _mm512_add_epi16(_mm512_load_si512(sums + 32), high));
    }
    if (++pending.blocks == kMostPending) settle_context(pending, costs.bits[kind][context]);
  }
}

void settle(ValueCosts& costs) {
  for (size_t kind = 0; kind < 2; ++kind) {
    for (size_t context = 0; context <= kMaskBytes; ++context) {
      if (costs.pending[kind][context].blocks == 0) continue;
      settle_context(costs.pending[kind][context], costs.bits[kind][context]);
    }
  }
}

}  // namespace

constinit const CodingKernels kCodingAvx512{count, settle, choose_lists, choose_lengths};

}  // namespace fastload

#endif
