#include <bit>

#include "transcode/block_coder.h"
#include "transcode/plain_bits.h"
// Behind the others:
#include "base/highway.h"

namespace fastload::FASTLOAD_LEVEL {

#if HWY_TARGET == HWY_AVX3

// Finds the symbols of a block at once.
namespace {

// The symbols of a run, each with the value's bits behind its code.
struct Symbols {
  static constexpr size_t kMost = BlockRun::kMost * 64;
  static constexpr size_t kSlack = 64;  // written behind the last one
  alignas(64) std::array<uint32_t, kMost + kSlack> bits;
  alignas(64) std::array<uint8_t, kMost + kSlack> counts;
  size_t used = 0;

  void add(HuffmanCodes::Code code, Category value) {
    if (code.length == 0) [[unlikely]]
      throw_no_code();
    bits[used] = uint32_t{code.code} << value.size | value.bits;
    counts[used++] = static_cast<uint8_t>(code.length + value.size);
  }
};

alignas(64) constexpr std::array<uint8_t, 64> kPlaces = [] {
  std::array<uint8_t, 64> places{};
  for (size_t i = 0; i < 64; ++i) places[i] = static_cast<uint8_t>(i);
  return places;
}();

// Categories of the magnitudes 0 to 127.
alignas(64) constexpr std::array<uint8_t, 128> kSizes = [] {
  std::array<uint8_t, 128> sizes{};
  for (size_t i = 0; i < 128; ++i) sizes[i] = static_cast<uint8_t>(std::bit_width(i));
  return sizes;
}();

__m512i byte_of(const std::array<uint8_t, 256>& table, __m512i index, __mmask64 upper) {
  const __m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(table.data()), index,
                                               _mm512_load_si512(table.data() + 64));
  const __m512i high = _mm512_permutex2var_epi8(_mm512_load_si512(table.data() + 128), index,
                                                _mm512_load_si512(table.data() + 192));
  return _mm512_mask_mov_epi8(low, upper, high);
}

__m512i both(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// Categories of 64 values, a byte each; 16 for -32768.
__m512i sizes_of(__m512i first, __m512i second) {
  const __m512i a = _mm512_abs_epi16(first), b = _mm512_abs_epi16(second);
  const __m512i low = both(_mm512_cvtepi16_epi8(a), _mm512_cvtepi16_epi8(b));
  const __m512i high = both(_mm512_cvtepi16_epi8(_mm512_srli_epi16(a, 8)),
                            _mm512_cvtepi16_epi8(_mm512_srli_epi16(b, 8)));
  const __m512i table = _mm512_load_si512(kSizes.data());
  const __m512i table_behind = _mm512_load_si512(kSizes.data() + 64);
  const __m512i eight = _mm512_set1_epi8(8);
  const auto size = [&](__m512i bytes) {
    const __m512i known = _mm512_permutex2var_epi8(table, bytes, table_behind);
    return _mm512_mask_mov_epi8(known, _mm512_movepi8_mask(bytes), eight);
  };
  return _mm512_mask_add_epi8(size(low), _mm512_test_epi8_mask(high, high), size(high), eight);
}

// A block with more zeros in a row than a symbol holds.
[[gnu::noinline]] void add_long_runs(uint64_t mask, const int16_t* values,
                                     const HuffmanCodes& codes, Symbols& symbols) {
  int next = 1;
  for (; mask != 0; mask &= mask - 1) {
    const int k = std::countr_zero(mask);
    int zeros = k - next;
    next = k + 1;
    for (; zeros > 15; zeros -= 16) symbols.add(codes.of[0xF0], {0, 0});
    const Category value = category(*values++);
    symbols.add(codes.of[static_cast<size_t>(zeros << 4 | value.size)], value);
  }
}

void add_values(uint64_t mask, const int16_t* values, const BlockCodes& codes, Symbols& symbols) {
  const auto count = static_cast<size_t>(std::popcount(mask));
  const __mmask64 used = (uint64_t{1} << count) - 1;
  const __m512i first = _mm512_loadu_si512(values), second = _mm512_loadu_si512(values + 32);
  const __m512i sizes = sizes_of(first, second);
  const __m512i iota = _mm512_load_si512(kPlaces.data());
  const __m512i one = _mm512_set1_epi8(1);
  const __m512i places = _mm512_maskz_compress_epi8(mask, iota);
  const __m512i before =
      _mm512_maskz_permutexvar_epi8(~__mmask64{1}, _mm512_sub_epi8(iota, one), places);
  const __m512i zeros = _mm512_sub_epi8(_mm512_sub_epi8(places, before), one);
  const __mmask64 too_much =
      _mm512_cmpgt_epu8_mask(_mm512_or_si512(zeros, sizes), _mm512_set1_epi8(15));
  if ((too_much & used) != 0) return add_long_runs(mask, values, *codes.ac, symbols);
  const __m512i index = _mm512_or_si512(_mm512_slli_epi16(zeros, 4), sizes);
  const __mmask64 upper = _mm512_movepi8_mask(index);
  const __m512i lengths = byte_of(codes.bytes->length, index, upper);
  if ((_mm512_testn_epi8_mask(lengths, lengths) & used) != 0) [[unlikely]]
    throw_no_code();
  const __m512i low = byte_of(codes.bytes->low, index, upper);
  const __m512i high = byte_of(codes.bytes->high, index, upper);
  _mm512_storeu_si512(&symbols.counts[symbols.used], _mm512_add_epi8(lengths, sizes));
  uint32_t* const to = &symbols.bits[symbols.used];
  symbols.used += count;
  // A negative value's bits are those of the value less 1, the ones above its size taken away: by
  // the code plus 1.
  const auto put = [to](size_t at, __m128i code_low, __m128i code_high, __m128i size,
                        __m256i value16) {
    const __m512i code = _mm512_or_si512(_mm512_cvtepu8_epi32(code_low),
                                         _mm512_slli_epi32(_mm512_cvtepu8_epi32(code_high), 8));
    const __m512i value = _mm512_cvtepi16_epi32(value16);
    const __m512i sign = _mm512_srai_epi32(value, 31);
    const __m512i shifted =
        _mm512_sllv_epi32(_mm512_sub_epi32(code, sign), _mm512_cvtepu8_epi32(size));
    _mm512_storeu_si512(to + at, _mm512_add_epi32(shifted, _mm512_add_epi32(value, sign)));
  };
  put(0, _mm512_castsi512_si128(low), _mm512_castsi512_si128(high), _mm512_castsi512_si128(sizes),
      _mm512_castsi512_si256(first));
  put(16, _mm512_extracti32x4_epi32(low, 1), _mm512_extracti32x4_epi32(high, 1),
      _mm512_extracti32x4_epi32(sizes, 1), _mm512_extracti64x4_epi64(first, 1));
  if (count <= 32) return;
  put(32, _mm512_extracti32x4_epi32(low, 2), _mm512_extracti32x4_epi32(high, 2),
      _mm512_extracti32x4_epi32(sizes, 2), _mm512_castsi512_si256(second));
  put(48, _mm512_extracti32x4_epi32(low, 3), _mm512_extracti32x4_epi32(high, 3),
      _mm512_extracti32x4_epi32(sizes, 3), _mm512_extracti64x4_epi64(second, 1));
}

// Two at a time.
PlainBits put_symbols(PlainBits out, Symbols& symbols) {
  _mm512_storeu_si512(&symbols.counts[symbols.used], _mm512_setzero_si512());
  _mm512_storeu_si512(&symbols.bits[symbols.used], _mm512_setzero_si512());
  const __m512i lower = _mm512_set1_epi64(0xFFFFFFFF);
  alignas(64) std::array<uint64_t, 8> bits, counts;
  for (size_t at = 0; at < symbols.used; at += 16) {
    const __m512i symbol = _mm512_load_si512(&symbols.bits[at]);
    const __m512i count =
        _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(&symbols.counts[at])));
    const __m512i second = _mm512_srli_epi64(count, 32);
    const __m512i pair = _mm512_or_si512(_mm512_sllv_epi64(_mm512_and_si512(symbol, lower), second),
                                         _mm512_srli_epi64(symbol, 32));
    const __m512i in_pair = _mm512_add_epi64(_mm512_and_si512(count, lower), second);
    if (_mm512_cmpgt_epu64_mask(in_pair, _mm512_set1_epi64(57)) != 0) [[unlikely]] {
      for (size_t i = at; i < at + 16; ++i) out.put(symbols.bits[i], symbols.counts[i]);
      continue;
    }
    _mm512_store_si512(bits.data(), pair);
    _mm512_store_si512(counts.data(), in_pair);
    for (size_t i = 0; i < 8; ++i) out.put(bits[i], static_cast<uint32_t>(counts[i]));
  }
  return out;
}

}  // namespace

uint8_t* code_blocks(const BlockRun& run, const std::array<BlockCodes, 3>& all, CoderState& state,
                     uint8_t* to) {
  Symbols symbols;
  for (size_t i = 0; i < run.count; ++i) {
    const ListedBlock& block = run.block[i];
    const BlockCodes& codes = all[run.component[i]];
    int& before = state.before[run.component[i]];
    const Category dc = category(block.dc - before);
    before = block.dc;
    symbols.add(codes.dc->of[static_cast<size_t>(dc.size)], dc);
    add_values(block.mask, block.values, codes, symbols);
    if (block.mask >> 63 == 0) symbols.add(codes.ac->of[0], {0, 0});
  }
  const PlainBits out = put_symbols({state.word, state.bits, to}, symbols);
  state.word = out.word & ((1u << out.bits) - 1);
  state.bits = out.bits;
  return out.to;
}

#else

// Value by value.
namespace {

void put_code(PlainBits& out, const HuffmanCodes& codes, int symbol, Category value) {
  const HuffmanCodes::Code code = codes.of[static_cast<size_t>(symbol)];
  if (code.length == 0) [[unlikely]]
    throw_no_code();
  out.put(uint64_t{code.code} << value.size | value.bits,
          static_cast<uint32_t>(code.length + value.size));
}

// What small_codes() does not hold.
[[gnu::noinline]] PlainBits put_large(PlainBits out, const HuffmanCodes& codes, uint32_t zeros,
                                      int value) {
  for (; zeros > 15; zeros -= 16) put_code(out, codes, 0xF0, {0, 0});
  const Category ac = category(value);
  put_code(out, codes, static_cast<int>(zeros << 4) | ac.size, ac);
  return out;
}

}  // namespace

uint8_t* code_blocks(const BlockRun& run, const std::array<BlockCodes, 3>& all, CoderState& state,
                     uint8_t* to) {
  PlainBits out{state.word, state.bits, to};
  uint32_t there = SmallCodes::kThere;
  for (size_t i = 0; i < run.count; ++i) {
    const ListedBlock& block = run.block[i];
    const BlockCodes& codes = all[run.component[i]];
    int& before = state.before[run.component[i]];
    const Category dc = category(block.dc - before);
    before = block.dc;
    put_code(out, *codes.dc, dc.size, dc);
    const uint32_t* const small = codes.small->of.data();
    uint32_t next = 0;  // the coefficient behind the last one, less 1
    const int16_t* values = block.values;
    for (uint64_t left = block.mask >> 1; left != 0; left &= left - 1) {
      const auto k = static_cast<uint32_t>(std::countr_zero(left));
      const uint32_t zeros = k - next;
      const int value = *values++;
      const auto column = static_cast<uint32_t>(value + SmallCodes::kMagnitude);
      next = k + 1;
      if ((column | zeros << 3) >= 128) [[unlikely]] {
        out = put_large(out, *codes.ac, zeros, value);
        continue;
      }
      const uint32_t code = small[zeros << 7 | column];
      there &= code;
      out.put(code >> 6, code & 31);
    }
    if (next < 63) put_code(out, *codes.ac, 0, {0, 0});
  }
  if (there == 0) throw_no_code();
  state.word = out.word & ((1u << out.bits) - 1);
  state.bits = out.bits;
  return out.to;
}

#endif

}  // namespace fastload::FASTLOAD_LEVEL
