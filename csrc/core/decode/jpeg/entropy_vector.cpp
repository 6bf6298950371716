// The Huffman decoding loop (T.81, F.2.2). It has no vectors: what a level gives it is BMI2.
//
// What makes it fast: two symbols in one look-up, a block's end without a branch (the next table,
// block and position are selected), and values that exceed the look-up window put on a list instead
// of branched on. The run's end is a table of escapes instead of a test, and the next look-up
// stands before the stores of the last one.
#include <bit>
#include <cstring>
#include <utility>

#include "decode/jpeg/entropy.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

// T.81, F.2.2.1 (EXTEND): the `size` top bits as a value, 1 <= size <= 15; it is negative if it
// begins with 0, and then one more than its two's complement with the bits above set.
int16_t extend(uint64_t bits, uint64_t size) {
  const uint64_t positive = bits >> 63;
  const uint64_t raw = bits >> ((0 - size) & 63);
  return static_cast<int16_t>(raw + ((positive - 1) & (1 - (uint64_t{1} << size))));
}

struct BitBuffer {
  uint64_t bits = 0;   // next bit on top
  uint64_t count = 0;  // valid bits, in the low 6 bits; the rest is rubbish
  const uint8_t* next = nullptr;

  explicit BitBuffer(const uint8_t* data, size_t position) : next(data + position / 8) {
    refill();
    bits <<= position & 7;
    count -= position & 7;
  }

  static constexpr size_t kRefilled = 56;

  // At least kRefilled valid bits afterwards. Reads 8 bytes (see ScanBytes::kSlack).
  void refill() {
    uint64_t word;
    std::memcpy(&word, next, sizeof word);
    if constexpr (std::endian::native == std::endian::little) word = __builtin_bswap64(word);
    bits |= word >> (count & 63);
    next += (~count & 56) >> 3;
    count |= 56;
  }

  void drop(uint64_t n) {  // uses the low 6 bits of n
    bits <<= n & 63;
    count -= n;
  }

  [[nodiscard]] size_t position(const uint8_t* data) const {
    return static_cast<size_t>(next - data) * 8 - (count & 63);
  }
};

struct SlowSymbol {
  uint64_t consumed;  // bits, at most 31; 0: damaged
  uint64_t k;         // 64 at the block's end
};

// One symbol, the slow way, out of the loop's way: codes longer than the window, a block that ends
// without EOB, overflow.
[[gnu::noinline]] SlowSymbol decode_symbol(uint64_t bits, const HuffmanTable& table, uint64_t k,
                                           int16_t* coefs, const uint8_t* places) {
  // Codes of a length lie below those of greater lengths.
  const auto ahead = static_cast<uint32_t>(bits >> 48);
  size_t length = HuffmanTable::kLookupBits + 1;
  for (size_t i = HuffmanTable::kLookupBits + 1; i < 16; ++i) length += ahead >= table.limit[i];
  if (ahead < table.limit[HuffmanTable::kLookupBits]) {
    length = 1;
    while (ahead >= table.limit[length]) ++length;
  }
  if (ahead >= table.limit[16]) return {0, 0};
  const auto code = static_cast<int32_t>(ahead >> (16 - length));
  const uint64_t symbol =
      table.symbols[static_cast<size_t>(code + table.first_index[length]) & 255];
  const uint64_t size = symbol & 15, run = k == 0 ? 0 : symbol >> 4;
  const uint64_t reached = k + run + 1;
  if (size == 0) {
    if (k != 0 && run != 15) return {length, 64};
    return {reached > 64 ? 0 : length, reached};
  }
  if (reached > 64) return {0, 0};
  coefs[places[reached]] = extend(bits << length, size);
  return {length + size, reached};
}

// Writes the values that the loop left out.
void write_deferred(const DeferredValues& deferred, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const auto holder = static_cast<uint64_t>(static_cast<uint16_t>(*deferred.places[i]));
    *deferred.places[i] = extend(deferred.bits[i] << (holder & 15), holder >> 4 & 15);
  }
}

// The DC table of the block behind a run: every look-up leaves the loop's fast path.
constexpr HuffmanTable kStop = [] {
  HuffmanTable table{};
  table.entries.fill(HuffmanTable::kEscape);
  return table;
}();

// What the loop carries from one look-up to the next.
struct RunState {
  const HuffmanTable* table;  // for the next symbol
  uint64_t block;
  const uint8_t* place;  // &places[k], k the next coefficient, 0..63
  uint64_t late = 0;     // deferred values
};

// Moves on behind an entry: to the next coefficient, or to the next block if the entry ends this
// one. Which of them is close to random, so it must not become a branch; compilers like to make it
// one.
[[gnu::always_inline]] inline void advance(RunState& s, const BlockTargets& targets, uint64_t entry,
                                           const uint8_t* reached, const uint8_t* places) {
  s.table = targets.ac[s.block];
  s.place = reached;
#if defined(__x86_64__)
  asm("btl %[late_bit], %k[entry]\n\t"
      "adcq $0, %[late]\n\t"
      "btl %[end_bit], %k[entry]\n\t"
      "cmovcq %[dc], %[table]\n\t"
      "cmovcq %[first], %[place]\n\t"
      "adcq $0, %[block]"
      : [table] "+&r"(s.table), [place] "+&r"(s.place), [late] "+&r"(s.late), [block] "+r"(s.block)
      : [entry] "r"(entry), [end_bit] "i"(HuffmanTable::kBlockEndBit),
        [late_bit] "i"(HuffmanTable::kDeferredBit), [dc] "m"(targets.dc[s.block + 1]),
        [first] "r"(places)
      : "cc");
#elif defined(__aarch64__)
  asm("tst %w[entry], %[end_bit]\n\t"
      "csel %[table], %[dc], %[table], ne\n\t"
      "csel %[place], %[first], %[place], ne\n\t"
      "cinc %[block], %[block], ne"
      : [table] "+&r"(s.table), [place] "+&r"(s.place), [block] "+&r"(s.block)
      : [entry] "r"(entry), [end_bit] "i"(1 << HuffmanTable::kBlockEndBit),
        [dc] "r"(targets.dc[s.block + 1]), [first] "r"(places)
      : "cc");
  s.late += entry >> HuffmanTable::kDeferredBit & 1;
#else
  const bool ends = (entry >> HuffmanTable::kBlockEndBit & 1) != 0;
  s.table = ends ? targets.dc[s.block + 1] : s.table;
  s.place = ends ? places : s.place;
  s.block += ends;
  s.late += entry >> HuffmanTable::kDeferredBit & 1;
#endif
}

// Where the first of an entry's coefficients goes.
[[gnu::always_inline]] inline uint8_t first_place(const uint8_t* place, uint64_t entry) {
#if defined(__x86_64__)
  asm("btl %[run_bit], %k[entry]\n\tadcq $0, %[place]"
      : [place] "+r"(place)
      : [entry] "r"(entry), [run_bit] "i"(HuffmanTable::kRunBit)
      : "cc");
#else
  place += entry >> HuffmanTable::kRunBit & 1;
#endif
  return place[1];
}

enum class Step { kDone, kEnd, kDamaged };

// An entry and where it was found: its two values are loaded from there.
struct Found {
  const uint32_t* at;
  uint64_t entry;
};

[[gnu::always_inline]] inline Found look_up(const BitBuffer& in, const RunState& s) {
  const uint32_t* const at = &s.table->entries[in.bits >> (64 - HuffmanTable::kLookupBits)];
  return {at, *at};
}

// Out of the loop's way: what no entry describes, and the run's end.
[[gnu::always_inline]] inline Step leave(BitBuffer& in, RunState& s, BlockTargets& targets,
                                         size_t end, const uint8_t* places) {
  if (s.block == end) return Step::kEnd;
  in.refill();
  const auto k = static_cast<uint64_t>(s.place - places);
  const SlowSymbol symbol = decode_symbol(in.bits, *s.table, k, targets.coefs[s.block], places);
  if (symbol.consumed == 0) return Step::kDamaged;
  in.drop(symbol.consumed);
  in.refill();
  s.block += symbol.k >> 6;
  s.place = places + (symbol.k & 63);
  s.table = (symbol.k & 63) == 0 ? targets.dc[s.block] : targets.ac[s.block];
  return Step::kDone;
}

// Takes `found`, at most kMaxStepBits bits (or a refill before and after), and looks up the next
// entry. The look-up stands before the stores: their addresses come late, and a processor may hold
// back loads that follow them.
template <bool kRefill>
[[gnu::always_inline]] inline Step decode_step(BitBuffer& in, RunState& s, Found& found,
                                               BlockTargets& targets, size_t end,
                                               const uint8_t* places) {
  const uint64_t entry = found.entry;
  const uint8_t* const reached = s.place + ((entry >> 8) & 0xFF);
  if (__builtin_expect((reinterpret_cast<uintptr_t>(reached) & 64) != 0, 0)) {
    const Step step = leave(in, s, targets, end, places);
    found = look_up(in, s);
    return step;
  }
  int16_t* const coefs = targets.coefs[s.block];
  const auto* const values = reinterpret_cast<const signed char*>(found.at) + 2;
  const uint8_t* const place = s.place;
  const uint64_t bits = in.bits, late = s.late;
  in.drop(entry);
  advance(s, targets, entry, reached, places);
  if constexpr (kRefill) in.refill();
  found = look_up(in, s);
  asm volatile("" : "+r"(found.entry));
  int16_t* const last = coefs + *reached;
  const uint8_t first = first_place(place, entry);
  const int first_value = values[0], last_value = values[1];
  coefs[first] = static_cast<int16_t>(first_value);
  *last = static_cast<int16_t>(last_value);
  targets.deferred.bits[late] = bits;
  targets.deferred.places[late] = last;
  return Step::kDone;
}

}  // namespace

bool decode_run(const uint8_t* data, size_t& position, BlockTargets& targets, size_t begin,
                size_t end, const uint8_t* places) {
  static_assert(3 * HuffmanTable::kMaxStepBits <= BitBuffer::kRefilled);
  const HuffmanTable* const behind = std::exchange(targets.dc[end], &kStop);
  BitBuffer in(data, position);
  RunState s{targets.dc[begin], begin, places};
  in.refill();
  Found found = look_up(in, s);
  Step step;
  do {
    step = decode_step<false>(in, s, found, targets, end, places);
    if (step == Step::kDone) step = decode_step<false>(in, s, found, targets, end, places);
    if (step == Step::kDone) step = decode_step<true>(in, s, found, targets, end, places);
  } while (step == Step::kDone);
  targets.dc[end] = behind;
  position = in.position(data);
  if (step == Step::kDamaged) return false;
  write_deferred(targets.deferred, s.late);
  return true;
}

}  // namespace fastload::FASTLOAD_LEVEL
