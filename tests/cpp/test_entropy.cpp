// decode/jpeg: Huffman decoding of runs against an obvious coder, at every level of this machine:
// all lengths of codes and values, zeros up to a block's last coefficient, any first bit. What is
// damaged is refused.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "check.h"
#include "decode/jpeg/bits.h"
#include "decode/jpeg/entropy.h"
#include "decode/jpeg/huffman.h"
#include "levels.h"
#include "random.h"

namespace {

using namespace fastload;
using test::Random;
using Block = std::array<int16_t, 64>;  // zig-zag order

// T.81, Annex C, one code after the other.
struct Codes {
  std::vector<uint32_t> code;
  std::vector<int> length;
  std::vector<uint8_t> symbol;

  explicit Codes(const HuffmanSpec& spec) {
    uint32_t next = 0;
    for (int bits = 1; bits <= 16; ++bits, next <<= 1) {
      for (int i = 0; i < spec.counts[static_cast<size_t>(bits)]; ++i) {
        code.push_back(next++);
        length.push_back(bits);
        symbol.push_back(spec.symbols[symbol.size()]);
      }
    }
  }
};

// Codes of random lengths: mostly short ones, mostly long ones, or as they come.
HuffmanSpec random_spec(Random& random, int largest_symbol) {
  HuffmanSpec spec;
  spec.present = true;
  const int shortest = random.in(1, 12);
  int free = 1, symbols = 0;
  for (int length = 1; length <= 16; ++length) {
    free = std::min(2 * free, 1 << 16);
    const int most = std::min({free - 1, 256 - symbols, 255});
    const int count = length == 16 ? most : length < shortest ? 0 : random.in(0, std::min(most, 9));
    spec.counts[static_cast<size_t>(length)] = static_cast<uint8_t>(count);
    free -= count;
    symbols += count;
  }
  for (int i = 0; i < symbols; ++i) {
    spec.symbols[static_cast<size_t>(i)] = static_cast<uint8_t>(random.in(0, largest_symbol));
  }
  // What a block cannot do without, somewhere.
  if (largest_symbol > 15) spec.symbols[static_cast<size_t>(random.in(0, symbols - 1))] = 0;
  return spec;
}

class Writer {
 public:
  void put(uint32_t bits, int count) {
    for (int i = count - 1; i >= 0; --i, ++size_) {
      if (size_ % 8 == 0) bytes_.push_back(0);
      bytes_.back() = static_cast<uint8_t>(bytes_.back() | (bits >> i & 1) << (7 - size_ % 8));
    }
  }
  // T.81, F.1.2.1: a negative value is written as one less.
  int16_t put_value(Random& random, int size) {
    if (size == 0) return 0;
    const int magnitude = random.in(1 << (size - 1), (1 << size) - 1);
    const bool negative = random.coin();
    put(static_cast<uint32_t>(negative ? ~magnitude & ((1 << size) - 1) : magnitude), size);
    return static_cast<int16_t>(negative ? -magnitude : magnitude);
  }
  uint8_t put_symbol(const Codes& codes, size_t index) {
    put(codes.code[index], codes.length[index]);
    return codes.symbol[index];
  }
  [[nodiscard]] size_t size() const { return size_; }
  // With as many bytes behind them as a decoder may look at.
  [[nodiscard]] std::vector<uint8_t> bytes(Random& random) const {
    std::vector<uint8_t> out = bytes_;
    for (size_t i = 0; i < kMaxRunBlocks * kMaxBlockBytes + 16; ++i) out.push_back(random.sample());
    return out;
  }

 private:
  std::vector<uint8_t> bytes_;
  size_t size_ = 0;
};

size_t random_index(Random& random, const Codes& codes) {
  return static_cast<size_t>(random.in(0, static_cast<int>(codes.code.size()) - 1));
}

Block put_block(Random& random, const Codes& dc, const Codes& ac, Writer& writer) {
  Block block{};
  block[0] = writer.put_value(random, writer.put_symbol(dc, random_index(random, dc)));
  const int most = random.in(0, 63);
  for (int k = 1; k < 64;) {
    const size_t index = random_index(random, ac);
    const int run = ac.symbol[index] >> 4, size = ac.symbol[index] & 15;
    const bool ends = size == 0 && run != 15;
    if (ends ? k < most && random.in(0, 9) > 0 : k + run > 63) continue;  // not here
    writer.put_symbol(ac, index);
    if (ends) break;
    if (size > 0) block[static_cast<size_t>(k + run)] = writer.put_value(random, size);
    k += run + 1;
  }
  return block;
}

struct Decoded {
  bool good;
  size_t position;
  std::vector<int16_t> coefs;
};

class Decoding {
 public:
  explicit Decoding(const HuffmanTables& tables) : targets_(std::make_unique<BlockTargets>()) {
    for (int k = 1; k <= 64; ++k) places_.set(k, k - 1);
    for (size_t i = 0; i <= kMaxRunBlocks; ++i) targets_->set(i, tables, nullptr);
  }
  // In two runs of blocks.
  Decoded run(SimdLevel level, const uint8_t* data, size_t position, size_t first, size_t count) {
    Decoded out{true, position, std::vector<int16_t>((kMaxRunBlocks + 1) * 64)};
    for (size_t i = 0; i <= kMaxRunBlocks; ++i) targets_->coefs[i] = out.coefs.data() + i * 64;
    const HuffmanTable* const behind = targets_->dc[count];
    const DecodeRun decode = FASTLOAD_KERNEL_AT(level, decode_run);
    for (const auto& [begin, end] : {std::pair{size_t{0}, first}, std::pair{first, count}}) {
      if (begin == end || !out.good) continue;
      out.good = decode(data, out.position, *targets_, begin, end, places_.data());
      CHECK(targets_->dc[end] == behind);
    }
    return out;
  }

 private:
  std::unique_ptr<BlockTargets> targets_;
  CoefPlaces places_;
};

}  // namespace

TEST(runs_of_any_code_are_decoded_at_every_level) {
  Random random(6);
  const std::vector<SimdLevel> levels = test::machine_levels();
  for (int i = 0; i < 400; ++i) {
    const HuffmanSpec dc_spec = random_spec(random, 15), ac_spec = random_spec(random, 255);
    const Codes dc(dc_spec), ac(ac_spec);
    auto tables = std::make_unique<HuffmanTables>();
    const auto count = static_cast<size_t>(random.in(1, static_cast<int>(kMaxRunBlocks)));
    Writer writer;
    const int skipped = random.in(0, 40);
    for (int bit = 0; bit < skipped; ++bit) writer.put(random.coin() ? 1 : 0, 1);
    std::vector<int16_t> wanted((kMaxRunBlocks + 1) * 64);
    for (size_t block = 0; block < count; ++block) {
      const Block made = put_block(random, dc, ac, writer);
      std::copy(made.begin(), made.end(), wanted.begin() + static_cast<ptrdiff_t>(block * 64));
    }
    const std::vector<uint8_t> bytes = writer.bytes(random);
    const auto first = static_cast<size_t>(random.in(0, static_cast<int>(count)));
    for (const SimdLevel level : levels) {
      build_tables(dc_spec, ac_spec, level, *tables);
      const Decoded found =
          Decoding(*tables).run(level, bytes.data(), static_cast<size_t>(skipped), first, count);
      CHECK(found.good);
      CHECK_EQ(found.position, writer.size());
      CHECK(found.coefs == wanted);
    }
  }
}

TEST(codes_that_are_none_and_zeros_past_the_block_are_refused) {
  Random random(7);
  for (int i = 0; i < 300; ++i) {
    const HuffmanSpec dc_spec = random_spec(random, 15);
    HuffmanSpec ac_spec = random_spec(random, 255);
    const Codes dc(dc_spec);
    Writer writer;
    const int blocks = random.in(0, 5);
    for (int block = 0; block < blocks; ++block) put_block(random, dc, Codes(ac_spec), writer);
    const int kind = i % 3;
    if (kind == 0) writer.put(0xFFFF, 16);  // in place of a DC code: of ones only
    if (kind > 0) writer.put_value(random, writer.put_symbol(dc, random_index(random, dc)));
    if (kind == 1) writer.put(0xFFFF, 16);
    const Codes ac(ac_spec);
    for (int k = 1; kind == 2 && k <= 64;) {
      const size_t index = random_index(random, ac);
      const int run = ac.symbol[index] >> 4, size = ac.symbol[index] & 15;
      if ((size == 0 && run != 15) || k + run == 63) continue;  // never at its end
      writer.put_symbol(ac, index);
      writer.put_value(random, size);
      k += run + 1;
    }
    auto tables = std::make_unique<HuffmanTables>();
    const std::vector<uint8_t> bytes = writer.bytes(random);
    for (const SimdLevel level : test::machine_levels()) {
      build_tables(dc_spec, ac_spec, level, *tables);
      CHECK(
          !Decoding(*tables).run(level, bytes.data(), 0, 0, static_cast<size_t>(blocks) + 1).good);
    }
  }
}

namespace {

void build(const HuffmanSpec& dc, const HuffmanSpec& ac) {
  auto tables = std::make_unique<HuffmanTables>();
  build_tables(dc, ac, SimdLevel::kScalar, *tables);
}

// So many codes of each of these lengths.
HuffmanSpec spec_of(std::initializer_list<std::pair<size_t, int>> counts) {
  HuffmanSpec spec;
  spec.present = true;
  for (const auto& [length, count] : counts) spec.counts[length] = static_cast<uint8_t>(count);
  return spec;
}

}  // namespace

TEST(lengths_that_are_no_prefix_code_are_refused) {
  const HuffmanSpec good = spec_of({{2, 3}});
  build(good, spec_of({{1, 1}}));
  build(good, spec_of({{1, 1}, {2, 1}, {3, 1}, {16, 255}}));
  build(good, spec_of({}));
  for (const HuffmanSpec& bad : {spec_of({{1, 2}}), spec_of({{2, 4}}), spec_of({{1, 1}, {2, 2}}),
                                 spec_of({{1, 1}, {3, 4}}), spec_of({{8, 255}, {9, 2}})}) {
    CHECK_THROWS(kDecode, "no prefix code", build(good, bad));
    CHECK_THROWS(kDecode, "no prefix code", build(bad, good));
  }
}

TEST(dc_symbols_are_sizes) {
  HuffmanSpec dc = spec_of({{2, 2}, {16, 1}});
  const HuffmanSpec ac = spec_of({{2, 3}});
  dc.symbols[3] = 16;  // behind the last one, where it means nothing
  for (const size_t place : {size_t{0}, size_t{2}}) {
    dc.symbols[place] = 15;
    build(dc, ac);
    dc.symbols[place] = 16;
    CHECK_THROWS(kDecode, "a DC Huffman symbol is above 15", build(dc, ac));
    dc.symbols[place] = 0;
  }
}

namespace {

struct Plain {
  std::vector<uint8_t> bytes;  // unstuffed
  size_t end;                  // offset in the file behind them
};

Plain unstuffed(const std::vector<uint8_t>& file, size_t begin) {
  Plain out{{}, begin};
  while (out.end < file.size()) {
    const uint8_t byte = file[out.end];
    if (byte == 0xFF && (out.end + 1 == file.size() || file[out.end + 1] != 0)) break;
    out.bytes.push_back(byte);
    out.end += byte == 0xFF ? 2 : 1;
  }
  return out;
}

std::vector<uint8_t> random_segment(Random& random) {
  const int size = random.in(0, 3000), rarity = random.in(0, 300);
  std::vector<uint8_t> file(static_cast<size_t>(size));
  for (uint8_t& byte : file) {
    const int drawn = random.in(0, rarity + 1);
    byte = static_cast<uint8_t>(drawn == 0 ? 0xFF : random.in(0, 254));
  }
  const bool markers = random.in(0, 3) == 0;
  for (size_t i = 1; i < file.size(); ++i) {
    if (file[i - 1] == 0xFF) file[i] = markers && random.in(0, 40) == 0 ? 0xD9 : 0;
  }
  return file;
}

// `bytes` has the first of what is in `plain`.
void check_prefix(const ScanBytes& bytes, const Plain& plain) {
  CHECK(bytes.size() <= plain.bytes.size());
  CHECK(std::equal(bytes.data(), bytes.data() + bytes.size(), plain.bytes.begin()));
}

}  // namespace

TEST(a_segments_bytes_come_as_they_are_needed) {
  Random random(8);
  ScanBytes bytes;
  for (const SimdLevel level : test::machine_levels()) {
    for (int i = 0; i < 400; ++i) {
      const std::vector<uint8_t> file = random_segment(random);
      const auto begin = static_cast<size_t>(random.in(0, static_cast<int>(file.size())));
      const Plain plain = unstuffed(file, begin);
      bytes.open({file.data(), file.size()}, begin, level);
      CHECK_EQ(bytes.size(), size_t{0});
      CHECK_EQ(bytes.offset(), begin);
      CHECK(bytes.ended() == (begin == file.size()));
      for (size_t wanted = 0; wanted < plain.bytes.size() + 700;
           wanted += static_cast<size_t>(random.in(1, 900))) {
        bytes.require(wanted);
        CHECK(bytes.size() >= std::min(wanted, plain.bytes.size()));
        CHECK(bytes.size() <= wanted + 520 || bytes.ended());  // no more than a little ahead
        check_prefix(bytes, plain);
      }
      bytes.require(plain.bytes.size() + 1);
      CHECK(bytes.ended());
      CHECK_EQ(bytes.size(), plain.bytes.size());
      CHECK_EQ(bytes.offset(), plain.end);
    }
  }
}

TEST(bytes_are_taken_up_to_an_offset) {
  Random random(9);
  ScanBytes bytes;
  for (int i = 0; i < 600; ++i) {
    const std::vector<uint8_t> file = random_segment(random);
    bytes.open({file.data(), file.size()}, 0, test::machine_levels().back());
    const Plain plain = unstuffed(file, 0);
    for (size_t offset = 0; offset < file.size() + 9;
         offset += static_cast<size_t>(random.in(1, 900))) {
      if (offset > 0 && offset <= file.size() && file[offset - 1] == 0xFF) continue;
      const size_t before = bytes.offset();
      bytes.take_until(offset);
      CHECK_EQ(bytes.offset(), std::min(std::max(offset, before), plain.end));
      CHECK(bytes.ended() == (plain.end < std::min(offset, file.size()) || offset >= file.size()));
      check_prefix(bytes, plain);
    }
  }
}
