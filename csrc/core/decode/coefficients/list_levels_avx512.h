// A list's planes without depositing their bits: level j is the values of which S_j says 1, one
// behind the other, a byte each. Its planes are whole runs of bits, so it is made from the level
// above by one expansion and two masked additions. For files compiled for AVX-512.
#pragma once

#if defined(__x86_64__)

#include <algorithm>

#include "base/vectors.h"
#include "decode/coefficients/segment_reader.h"

namespace fastload {
namespace {

struct Avx512Words {
  // Eight words at a time: a word is the lowest bits of two at the byte that it begins in.
  static void copy(const uint8_t* data, size_t at, size_t words, uint64_t* plane) {
    const __m512i shift = _mm512_set1_epi64(static_cast<int64_t>(at % 8));
    for (size_t w = 0; w < words; w += 8) {
      const uint8_t* const from = data + at / 8 + 8 * w;
      // Only bytes that belong to the words, and one more: the slack has no room for whole vectors.
      const auto used = static_cast<__mmask8>((1u << std::min<size_t>(words - w, 8)) - 1);
      const __m512i first = _mm512_maskz_loadu_epi64(used, from);
      const __m512i next = _mm512_maskz_loadu_epi64(used, from + 1);
      // The upper bits of the next byte: what the first word's shift leaves free.
      const __m512i word =
          _mm512_or_si512(_mm512_srlv_epi64(first, shift),
                          _mm512_sllv_epi64(_mm512_srli_epi64(next, 56),
                                            _mm512_sub_epi64(_mm512_set1_epi64(64), shift)));
      _mm512_mask_storeu_epi64(plane + w, used, word);
    }
  }
};

enum class LevelsRead { kDone, kDamaged, kTooMany };

class ListLevels {
 public:
  // Reads the `count` values of a list, more than 0; those that do not fit into a signed byte make
  // it wide. kTooMany: nothing is read, as some level has more values than are looked at here.
  static LevelsRead read(BitPlace& place, size_t count, int rice, ListBytes& list) {
    if (count > 64 * kWords) return LevelsRead::kTooMany;
    const size_t planes = 2 + static_cast<size_t>(rice);
    if (!place.has(count * planes)) return LevelsRead::kDamaged;
    ListLevels levels(place, count, rice);
    const LevelsRead found = levels.find();
    if (found != LevelsRead::kDone) return found;
    levels.write(list);
    place.at = levels.at_;
    return LevelsRead::kDone;
  }

 private:
  static constexpr size_t kWords = 8;
  // A value that fits into a byte: the largest is 2^(rice + depth + 1) - 2^rice.
  static constexpr int kMostDepth = 7;

  struct Words {
    alignas(64) std::array<uint64_t, kWords> ones;
    size_t words;
  };
  // A level above the first, in two registers.
  struct Pair {
    __m512i first = _mm512_setzero_si512(), second = _mm512_setzero_si512();
  };

  ListLevels(const BitPlace& place, size_t count, int rice)
      : data_(place.data),
        bits_(place.bits),
        sign_at_(place.at),
        at_(place.at + count * (1 + static_cast<size_t>(rice))),
        count_(count),
        rice_(rice) {}

  // Where each plane lies, and which values are of the next level.
  LevelsRead find() {
    members_[0] = count_;
    members_[1] = read_words(count_, values_);
    if (members_[1] == 0) return LevelsRead::kDone;
    if (!has(members_[1])) return LevelsRead::kDamaged;
    size_t ones = read_words(members_[1], first_);
    depth_ = 1;
    while (ones > 0) {
      if (ones > 128 || ++depth_ + rice_ > kMostDepth) return LevelsRead::kTooMany;
      if (!has(ones)) return LevelsRead::kDamaged;
      const auto level = static_cast<size_t>(depth_);
      members_[level] = ones;
      deep_[level][0] = _bzhi_u64(whole_word_at(data_, at_), static_cast<unsigned>(ones));
      deep_[level][1] =
          ones <= 64 ? 0
                     : _bzhi_u64(whole_word_at(data_, at_ + 64), static_cast<unsigned>(ones - 64));
      at_ += ones;
      ones = static_cast<size_t>(std::popcount(deep_[level][0])) +
             static_cast<size_t>(std::popcount(deep_[level][1]));
    }
    for (int level = 1; level <= depth_; ++level) {
      low_at_[static_cast<size_t>(level)] = at_;
      at_ += members_[static_cast<size_t>(level)];
    }
    return has(0) ? LevelsRead::kDone : LevelsRead::kDamaged;
  }

  void write(ListBytes& list) const {
    Pair above;
    for (int level = depth_; level > 1; --level) above = level_of(level, above);
    alignas(64) std::array<int8_t, 64 * (kWords + 1)> first;
    if (depth_ > 0) write_first(above, first.data());
    list.is_wide = rice_ + depth_ > 6;
    size_t taken = 0;
    for (size_t w = 0; w < values_.words; ++w) {
      const uint64_t ones = values_.ones[w];
      __m512i sum = _mm512_add_epi8(
          _mm512_set1_epi8(1), _mm512_maskz_expand_epi8(ones, _mm512_loadu_si512(&first[taken])));
      taken += static_cast<size_t>(std::popcount(ones));
      for (int bit = 0; bit < rice_; ++bit) {
        const size_t at = sign_at_ + count_ * (1 + static_cast<size_t>(bit)) + 64 * w;
        sum = _mm512_mask_add_epi8(sum, whole_word_at(data_, at), sum, weight(bit));
      }
      const __mmask64 sign = whole_word_at(data_, sign_at_ + 64 * w);
      const __m512i zero = _mm512_setzero_si512();
      _mm512_storeu_si512(list.low + 64 * w, _mm512_mask_sub_epi8(sum, sign, zero, sum));
      if (list.is_wide) _mm512_storeu_si512(list.high + 64 * w, _mm512_movm_epi8(sign));
    }
  }

  [[nodiscard]] bool has(size_t count) const { return at_ + count <= bits_; }

  // Reads a plane of `count` bits; how many are one.
  size_t read_words(size_t count, Words& to) {
    to.words = (count + 63) / 64;
    Avx512Words::copy(data_, at_, to.words, to.ones.data());
    to.ones[to.words - 1] &= ~uint64_t{0} >> (64 * to.words - count);
    at_ += count;
    size_t ones = 0;
    for (size_t w = 0; w < to.words; ++w) ones += static_cast<size_t>(std::popcount(to.ones[w]));
    return ones;
  }

  static __m512i weight(int bit) { return _mm512_set1_epi8(static_cast<char>(1 << bit)); }
  static __m512i places_from(size_t first) {
    alignas(64) static constexpr std::array<uint8_t, 64> kOrder = [] {
      std::array<uint8_t, 64> order{};
      for (size_t i = 0; i < 64; ++i) order[i] = static_cast<uint8_t>(i);
      return order;
    }();
    return _mm512_add_epi8(_mm512_load_si512(kOrder.data()),
                           _mm512_set1_epi8(static_cast<char>(first)));
  }
  // Those of `above` from number `taken` on, at the ones.
  static __m512i expanded(uint64_t ones, const Pair& above, size_t taken) {
    return _mm512_maskz_expand_epi8(
        ones, _mm512_permutex2var_epi8(above.first, places_from(taken), above.second));
  }
  // A level's own part of its values: their lowest bit but the raw ones, and that they are here.
  [[nodiscard]] __m512i own(int level, size_t w) const {
    const __m512i here = weight(level - 1 + rice_);
    const size_t at = low_at_[static_cast<size_t>(level)] + 64 * w;
    return _mm512_mask_add_epi8(here, whole_word_at(data_, at), here, here);
  }
  [[nodiscard]] Pair level_of(int level, const Pair& above) const {
    const auto& ones = deep_[static_cast<size_t>(level)];
    const auto taken = static_cast<size_t>(std::popcount(ones[0]));
    return {_mm512_add_epi8(own(level, 0), _mm512_maskz_expand_epi8(ones[0], above.first)),
            _mm512_add_epi8(own(level, 1), expanded(ones[1], above, taken))};
  }
  void write_first(const Pair& above, int8_t* to) const {
    size_t taken = 0;
    for (size_t w = 0; w < first_.words; ++w) {
      const uint64_t ones = first_.ones[w];
      _mm512_storeu_si512(to + 64 * w, _mm512_add_epi8(own(1, w), expanded(ones, above, taken)));
      taken += static_cast<size_t>(std::popcount(ones));
    }
  }

  const uint8_t* data_;
  size_t bits_, sign_at_, at_, count_;
  int rice_, depth_ = 0;
  Words values_, first_;  // which values are of level 1, and which of those of level 2
  std::array<std::array<uint64_t, 2>, kMostDepth + 1> deep_;
  std::array<size_t, kMostDepth + 1> members_, low_at_;
};

}  // namespace
}  // namespace fastload

#endif
