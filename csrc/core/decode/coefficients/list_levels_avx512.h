// A list's planes without depositing their bits: level j is the values of which S_j says 1, one
// behind the other, a byte each. Its planes are whole runs of bits, so it is made from the level
// above by one expansion and two masked additions. Part of segment_vector.cpp, for AVX-512.
#pragma once

#include <algorithm>

#include "decode/coefficients/segment_reader.h"

namespace fastload::FASTLOAD_LEVEL {
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

// One byte of each of 64 values, and for those of more than a byte the other one.
template <bool kDeep>
struct Lanes {
  __m512i low = _mm512_setzero_si512(), high = _mm512_setzero_si512();
};

class ListLevels {
 public:
  // Reads the `count` values of a list, more than 0. kTooMany: nothing is read, as some level has
  // more values than are looked at here.
  static LevelsRead read(BitPlace& place, size_t count, int rice, ListBytes& list) {
    if (count > 64 * kWords) return LevelsRead::kTooMany;
    if (!place.has(count * (2 + static_cast<size_t>(rice)))) return LevelsRead::kDamaged;
    ListLevels levels(place, count, rice);
    const LevelsRead found = levels.find();
    if (found != LevelsRead::kDone) return found;
    list.is_wide = rice + levels.depth_ > 6;
    if (rice + levels.depth_ > 7) {
      levels.write<true>(list);
    } else {
      levels.write<false>(list);
    }
    place.at = levels.at_;
    return LevelsRead::kDone;
  }

 private:
  static constexpr size_t kWords = 16;
  static constexpr size_t kPair = 128;     // values of a level that is kept in two registers
  static constexpr int kMemoryLevels = 4;  // those above have no more
  static constexpr int kMostDepth = ValuePlanes::kMostDepth;

  template <bool kDeep>
  struct Pair {
    Lanes<kDeep> first, second;
  };
  // A level in memory; 64 bytes more can be read.
  template <bool kDeep>
  struct Stored {
    std::array<std::array<int8_t, 64 * (kWords + 1)>, kDeep ? 2 : 1> bytes;
  };

  ListLevels(const BitPlace& place, size_t count, int rice)
      : data_(place.data),
        bits_(place.bits),
        sign_at_(place.at),
        at_(place.at + count * (1 + static_cast<size_t>(rice))),
        rice_(rice) {
    members_[0] = count;
  }

  // Where each plane lies, and which values are of the next level.
  LevelsRead find() {
    size_t ones = read_plane(0);
    while (ones > 0) {
      if (++depth_ + rice_ >= kMostDepth || !has(ones)) return LevelsRead::kDamaged;
      if (ones > kPair && depth_ > kMemoryLevels) return LevelsRead::kTooMany;
      if (ones > kPair) in_memory_ = depth_;
      const auto level = static_cast<size_t>(depth_);
      members_[level] = ones;
      ones = read_plane(level);
    }
    for (size_t level = 1; level <= static_cast<size_t>(depth_); ++level) {
      low_at_[level] = at_;
      at_ += members_[level];
    }
    return has(0) ? LevelsRead::kDone : LevelsRead::kDamaged;
  }

  [[nodiscard]] bool has(size_t count) const { return at_ + count <= bits_; }
  [[nodiscard]] size_t words_of(size_t level) const { return (members_[level] + 63) / 64; }

  // Reads the plane that says which members of a level are of the next one; how many.
  size_t read_plane(size_t level) {
    const size_t count = members_[level];
    auto& ones = ones_[level];
    const size_t at = at_;
    at_ += count;
    if (count <= kPair) {
      ones[0] = _bzhi_u64(whole_word_at(data_, at), static_cast<unsigned>(count));
      ones[1] = 0;
      if (count > 64) {
        ones[1] = _bzhi_u64(whole_word_at(data_, at + 64), static_cast<unsigned>(count - 64));
      }
      return static_cast<size_t>(std::popcount(ones[0]) + std::popcount(ones[1]));
    }
    const size_t words = words_of(level);
    Avx512Words::copy(data_, at, words, ones.data());
    ones[words - 1] &= ~uint64_t{0} >> (64 * words - count);
    size_t sum = 0;
    for (size_t w = 0; w < words; ++w) sum += static_cast<size_t>(std::popcount(ones[w]));
    return sum;
  }

  // Levels from the last one down: those of few values in registers, then those in memory.
  template <bool kDeep>
  void write(ListBytes& list) const {
    Pair<kDeep> above;
    int level = depth_;
    for (; level > in_memory_; --level) {
      const auto& ones = ones_[static_cast<size_t>(level)];
      const auto taken = static_cast<size_t>(std::popcount(ones[0]));
      above = {member(level, 0, ones[0], above.first),
               member(level, 1, ones[1], taken_from<kDeep>(above, taken))};
    }
    const auto from_pair = [&above](size_t taken) { return taken_from<kDeep>(above, taken); };
    if (in_memory_ == 0) {
      write_values<kDeep>(from_pair, list);
      return;
    }
    std::array<Stored<kDeep>, 2> stored;
    write_level<kDeep>(level, from_pair, stored[0]);
    size_t last = 0;
    const auto from_memory = [&stored, &last](size_t taken) {
      return taken_from<kDeep>(stored[last], taken);
    };
    for (--level; level > 0; --level) {
      write_level<kDeep>(level, from_memory, stored[1 - last]);
      last = 1 - last;
    }
    write_values<kDeep>(from_memory, list);
  }

  // The values of a level from number `taken` on.
  template <bool kDeep>
  static Lanes<kDeep> taken_from(const Pair<kDeep>& level, size_t taken) {
    alignas(64) static constexpr std::array<uint8_t, 64> kOrder = [] {
      std::array<uint8_t, 64> order{};
      for (size_t i = 0; i < 64; ++i) order[i] = static_cast<uint8_t>(i);
      return order;
    }();
    const __m512i places = _mm512_add_epi8(_mm512_load_si512(kOrder.data()),
                                           _mm512_set1_epi8(static_cast<char>(taken)));
    Lanes<kDeep> lanes;
    lanes.low = _mm512_permutex2var_epi8(level.first.low, places, level.second.low);
    if (kDeep) lanes.high = _mm512_permutex2var_epi8(level.first.high, places, level.second.high);
    return lanes;
  }
  template <bool kDeep>
  static Lanes<kDeep> taken_from(const Stored<kDeep>& level, size_t taken) {
    Lanes<kDeep> lanes;
    lanes.low = _mm512_loadu_si512(&level.bytes[0][taken]);
    if constexpr (kDeep) lanes.high = _mm512_loadu_si512(&level.bytes[1][taken]);
    return lanes;
  }

  // The bytes of 1 << bit.
  static __m512i low_weight(int bit) {
    return _mm512_set1_epi8(static_cast<char>(bit < 8 ? 1 << bit : 0));
  }
  static __m512i high_weight(int bit) {
    return _mm512_set1_epi8(static_cast<char>(bit < 8 ? 0 : 1 << (bit - 8)));
  }

  // 2^bit for those that are not of the next level, `above` for the others.
  template <bool kDeep>
  static Lanes<kDeep> expanded(int bit, uint64_t ones, const Lanes<kDeep>& above) {
    Lanes<kDeep> lanes;
    lanes.low = _mm512_mask_expand_epi8(low_weight(bit), ones, above.low);
    if (kDeep) lanes.high = _mm512_mask_expand_epi8(high_weight(bit), ones, above.high);
    return lanes;
  }
  // q * 2^rice, as far as the planes from this level on say it, of the values of word w.
  template <bool kDeep>
  [[nodiscard]] Lanes<kDeep> member(int level, size_t w, uint64_t ones,
                                    const Lanes<kDeep>& above) const {
    Lanes<kDeep> lanes = expanded(level + rice_, ones, above);
    const __mmask64 low = whole_word_at(data_, low_at_[static_cast<size_t>(level)] + 64 * w);
    const int bit = level - 1 + rice_;
    lanes.low = _mm512_mask_add_epi8(lanes.low, low, lanes.low, low_weight(bit));
    if (kDeep) lanes.high = _mm512_mask_add_epi8(lanes.high, low, lanes.high, high_weight(bit));
    return lanes;
  }

  template <bool kDeep, class Above>
  void write_level(int level, const Above& above, Stored<kDeep>& to) const {
    const auto index = static_cast<size_t>(level);
    size_t taken = 0;
    for (size_t w = 0; w < words_of(index); ++w) {
      const uint64_t ones = ones_[index][w];
      const Lanes<kDeep> lanes = member<kDeep>(level, w, ones, above(taken));
      _mm512_storeu_si512(&to.bytes[0][64 * w], lanes.low);
      if constexpr (kDeep) _mm512_storeu_si512(&to.bytes[1][64 * w], lanes.high);
      taken += static_cast<size_t>(std::popcount(ones));
    }
  }

  // |v| = q * 2^rice + the raw bits - (2^rice - 1), and the signs.
  template <bool kDeep, class Above>
  void write_values(const Above& above, ListBytes& list) const {
    const __m512i zero = _mm512_setzero_si512();
    const __m512i excess = _mm512_set1_epi8(static_cast<char>((1 << rice_) - 1));
    size_t taken = 0;
    for (size_t w = 0; w < words_of(0); ++w) {
      const uint64_t ones = ones_[0][w];
      Lanes<kDeep> lanes = expanded<kDeep>(rice_, ones, above(taken));
      taken += static_cast<size_t>(std::popcount(ones));
      for (int bit = 0; bit < rice_; ++bit) {
        const size_t at = sign_at_ + members_[0] * (1 + static_cast<size_t>(bit)) + 64 * w;
        const __mmask64 raw = whole_word_at(data_, at);
        lanes.low = _mm512_mask_add_epi8(lanes.low, raw, lanes.low, low_weight(bit));
      }
      const __mmask64 sign = whole_word_at(data_, sign_at_ + 64 * w);
      const __mmask64 borrow = kDeep ? _mm512_cmplt_epu8_mask(lanes.low, excess) : 0;
      const __m512i magnitude = _mm512_sub_epi8(lanes.low, excess);
      _mm512_storeu_si512(list.low + 64 * w,
                          _mm512_mask_sub_epi8(magnitude, sign, zero, magnitude));
      if (!list.is_wide) continue;
      __m512i high = _mm512_movm_epi8(sign);
      if (kDeep) {
        // -(256 h + l) = 256 (~h) + 256 - l, where 256 - l is 256 more for l = 0.
        const __m512i all = _mm512_set1_epi8(-1);
        lanes.high = _mm512_mask_add_epi8(lanes.high, borrow, lanes.high, all);
        high = _mm512_xor_si512(high, lanes.high);
        const __mmask64 is_zero = _mm512_testn_epi8_mask(magnitude, magnitude);
        high = _mm512_mask_sub_epi8(high, sign & is_zero, high, all);
      }
      _mm512_storeu_si512(list.high + 64 * w, high);
    }
  }

  const uint8_t* data_;
  size_t bits_, sign_at_, at_;
  int rice_, depth_ = 0;
  int in_memory_ = 0;  // the last level of more than kPair values
  // Of each level: how many values, which of them are of the next level, and where their plane of
  // lowest bits lies.
  std::array<size_t, kMostDepth + 1> members_, low_at_;
  std::array<std::array<uint64_t, kWords>, kMostDepth + 1> ones_;
};

}  // namespace
}  // namespace fastload::FASTLOAD_LEVEL
