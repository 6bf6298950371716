// decode/: the JPEG decoder's kernels at every level of this machine against plain ones, bit for
// bit, on memory of exactly the promised size.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "check.h"
#include "decode/jpeg/bits.h"
#include "decode/jpeg/color.h"
#include "decode/jpeg/huffman.h"
#include "decode/jpeg/idct.h"
#include "decode/jpeg/parser.h"
#include "levels.h"
#include "plain_jpeg.h"
#include "random.h"

namespace {

using namespace fastload;
using test::PlainColor;
using test::Random;
using Samples = std::vector<uint8_t>;
using Block = std::array<int16_t, 64>;  // natural order

// What blocks and quantisation steps are drawn from. kFlat: only the first row; kEdge: few, around
// the powers of two from where on sums could wrap; kWild: any 16 bits, so that products and sums
// wrap and results saturate.
enum class Kind { kEmpty, kFlat, kSparse, kFull, kEdge, kWild };
constexpr std::array<Kind, 6> kKinds{Kind::kEmpty, Kind::kFlat, Kind::kSparse,
                                     Kind::kFull,  Kind::kEdge, Kind::kWild};
Kind random_kind(Random& random) {
  return kKinds[static_cast<size_t>(random.in(0, static_cast<int>(kKinds.size()) - 1))];
}

int16_t on_edge(Random& random) {
  const int magnitude = (1 << random.in(11, 14)) + random.in(-2, 1);
  return static_cast<int16_t>(random.coin() ? magnitude : -magnitude);
}

int16_t extreme(Random& random) {
  constexpr std::array<int16_t, 8> values{-32768, 32767, -32767, 16384, -16384, 255, -1, 1};
  return random.coin() ? values[static_cast<size_t>(random.in(0, 7))]
                       : static_cast<int16_t>(random.in(-32768, 32767));
}

Block random_block(Random& random, Kind kind) {
  Block block{};
  if (kind == Kind::kEmpty) return block;
  for (size_t i = 0; i < 64; ++i) {
    const bool is_sparse = kind == Kind::kSparse || kind == Kind::kEdge;
    const bool used = kind == Kind::kFlat ? i < 8 : !is_sparse || random.in(0, 9) == 0;
    if (!used) continue;
    block[i] = kind == Kind::kWild   ? extreme(random)
               : kind == Kind::kEdge ? on_edge(random)
                                     : static_cast<int16_t>(random.in(-255, 255));
  }
  return block;
}

std::array<uint16_t, 64> random_steps(Random& random) {
  const int largest = std::array{1, random.in(1, 40), 65535}[static_cast<size_t>(random.in(0, 2))];
  std::array<uint16_t, 64> steps{};
  for (uint16_t& step : steps)
    step = static_cast<uint16_t>(random.in(largest == 1 ? 1 : 0, largest));
  return steps;
}

// The 8 rows of samples of `blocks` side by side; checks that the coefficients are zero afterwards.
Samples transformed(const IdctKernel& kernel, const std::vector<Block>& blocks,
                    const std::array<uint16_t, 64>& steps) {
  const int count = static_cast<int>(blocks.size());
  std::vector<int16_t> coefs(kernel.row_size(count));
  const CoefPlaces places = kernel.places();
  for (int b = 0; b < count; ++b) {
    int16_t* const at = coefs.data() + kernel.block_offset(b);
    for (size_t k = 0; k < 64; ++k) {
      at[places.data()[k + 1]] = blocks[static_cast<size_t>(b)][kZigzag[k]];
    }
  }
  const size_t width = 8 * blocks.size();
  const size_t stride = kernel.row_size(count) / 8;
  Samples out(8 * stride);
  kernel.transform(coefs.data(), steps.data(), out.data(), stride, count);
  CHECK(std::all_of(coefs.begin(), coefs.end(), [](int16_t c) { return c == 0; }));
  Samples rows;
  for (size_t y = 0; y < 8; ++y) {
    const auto row = out.begin() + static_cast<ptrdiff_t>(y * stride);
    rows.insert(rows.end(), row, row + static_cast<ptrdiff_t>(width));
  }
  return rows;
}

}  // namespace

TEST(idct_of_every_level_equals_the_plain_one) {
  Random random(1);
  const std::vector<SimdLevel> levels = test::machine_levels();
  for (int i = 0; i < 2500; ++i) {
    std::vector<Block> blocks(static_cast<size_t>(random.in(1, 9)));
    const Kind row_kind = random_kind(random);
    const bool mixed = random.coin();  // groups with flat and other blocks
    for (Block& block : blocks) {
      block = random_block(random, mixed ? random_kind(random) : row_kind);
    }
    const auto steps = random_steps(random);
    const Samples wanted = transformed(test::PlainIdct::kernel(), blocks, steps);
    for (const SimdLevel level : levels) {
      CHECK(transformed(idct_kernel(level), blocks, steps) == wanted);
    }
  }
}

namespace {

constexpr ColorKernels kPlainColor{PlainColor::h2v1, PlainColor::h2v2, PlainColor::h1v2,
                                   PlainColor::ycc_to_rgb, PlainColor::gray_to_rgb};

constexpr size_t kBlockSize = kColorBlock;
size_t whole_blocks(size_t count) { return (count + kBlockSize - 1) / kBlockSize * kBlockSize; }

// A row that upsampling may read: one sample before, and up to the block's end and one behind.
struct InputRow {
  explicit InputRow(Random& random, size_t outputs)
      : bytes(random.samples(whole_blocks(outputs) + 2)) {}
  [[nodiscard]] const uint8_t* data() const { return bytes.data() + 1; }
  Samples bytes;
};

// The first `count` samples of a row that `write` fills; it may write whole blocks of pixels.
template <class Write>
Samples output(size_t count, size_t channels, Write write) {
  Samples out(whole_blocks(count) * channels);
  write(out.data());
  out.resize(count * channels);
  return out;
}

}  // namespace

TEST(upsampling_of_every_level_equals_the_plain_one) {
  Random random(2);
  const std::vector<SimdLevel> levels = test::machine_levels();
  for (int count = 1; count <= 200; ++count) {
    const auto n = static_cast<size_t>(count);
    const InputRow near(random, 2 * n), far(random, 2 * n);
    for (const SimdLevel level : levels) {
      const ColorKernels& kernels = color_kernels(level);
      const auto h2v1 = [&](const ColorKernels& k) {
        return output(2 * n, 1, [&](uint8_t* to) { k.h2v1(near.data(), to, count); });
      };
      const auto h2v2 = [&](const ColorKernels& k) {
        return output(2 * n, 1, [&](uint8_t* to) { k.h2v2(near.data(), far.data(), to, count); });
      };
      CHECK(h2v1(kernels) == h2v1(kPlainColor));
      CHECK(h2v2(kernels) == h2v2(kPlainColor));
      for (const int bias : {1, 2}) {
        const auto h1v2 = [&](const ColorKernels& k) {
          return output(n, 1,
                        [&](uint8_t* to) { k.h1v2(near.data(), far.data(), bias, to, count); });
        };
        CHECK(h1v2(kernels) == h1v2(kPlainColor));
      }
    }
  }
}

TEST(colour_of_every_level_equals_the_plain_one_at_every_width) {
  Random random(3);
  const std::vector<SimdLevel> levels = test::machine_levels();
  for (int count = 1; count <= 200; ++count) {
    const auto n = static_cast<size_t>(count);
    const Samples y = random.samples(whole_blocks(n)), cb = random.samples(whole_blocks(n)),
                  cr = random.samples(whole_blocks(n));
    for (const SimdLevel level : levels) {
      const auto rgb = [&](const ColorKernels& k) {
        return output(
            n, 3, [&](uint8_t* to) { k.ycc_to_rgb(y.data(), cb.data(), cr.data(), to, count); });
      };
      const auto gray = [&](const ColorKernels& k) {
        return output(n, 3, [&](uint8_t* to) { k.gray_to_rgb(y.data(), to, count); });
      };
      CHECK(rgb(color_kernels(level)) == rgb(kPlainColor));
      CHECK(gray(color_kernels(level)) == gray(kPlainColor));
    }
  }
}

// Every pair of chroma values, each with luma that saturates below, above and not at all.
TEST(colour_of_every_level_equals_the_plain_one_for_every_chroma) {
  constexpr int kCount = 256;
  Samples every(kCount);
  for (size_t i = 0; i < every.size(); ++i) every[i] = static_cast<uint8_t>(i);
  const std::vector<SimdLevel> levels = test::machine_levels();
  for (int v = 0; v < 256; ++v) {
    const Samples cr(kCount, static_cast<uint8_t>(v));
    for (const int luma : {0, 1, 100, 128, 254, 255}) {
      const Samples y(kCount, static_cast<uint8_t>(luma));
      const auto rgb = [&](const ColorKernels& k) {
        return output(kCount, 3, [&](uint8_t* to) {
          k.ycc_to_rgb(y.data(), every.data(), cr.data(), to, kCount);
        });
      };
      const Samples wanted = rgb(kPlainColor);
      for (const SimdLevel level : levels) CHECK(rgb(color_kernels(level)) == wanted);
    }
  }
}

namespace {

// Entropy-coded bytes: stuffed FFs, at times a marker, at times FF as the last byte.
Samples stuffed(Random& random, size_t size) {
  const int rarity = random.in(1, 40);
  const bool markers = random.coin();
  Samples bytes;
  while (bytes.size() < size) {
    const bool ff = random.in(0, rarity) == 0;
    bytes.push_back(ff ? 0xFF : static_cast<uint8_t>(random.in(0, 254)));
    if (!ff) continue;
    bytes.push_back(markers && random.in(0, 9) == 0 ? static_cast<uint8_t>(random.in(1, 255)) : 0);
  }
  bytes.resize(size);
  bytes.shrink_to_fit();
  return bytes;
}

}  // namespace

TEST(unstuffing_of_every_level_equals_the_plain_one) {
  Random random(4);
  const std::vector<SimdLevel> levels = test::machine_levels();
  for (int i = 0; i < 4000; ++i) {
    const Samples bytes = stuffed(random, static_cast<size_t>(random.in(0, 300)));
    const uint8_t* const end = bytes.data() + bytes.size();
    Samples wanted(bytes.size() + 64);
    const UnstuffResult plain = test::plain_unstuff(bytes.data(), end, wanted.data());
    for (const SimdLevel level : levels) {
      Samples found(bytes.size() + 64);
      const UnstuffResult result = FASTLOAD_KERNEL_AT(level, unstuff)(bytes.data(), end, found.data());
      CHECK_EQ(result.source - bytes.data(), plain.source - bytes.data());
      CHECK_EQ(result.target - found.data(), plain.target - wanted.data());
      CHECK(std::equal(found.data(), result.target, wanted.data()));
    }
  }
}

namespace {

// Codes of random lengths, never all of the code space (T.81 forbids the code of ones only).
HuffmanSpec random_spec(Random& random, int largest_symbol) {
  HuffmanSpec spec;
  spec.present = true;
  int free = 1;  // codes of this length that are left
  int symbols = 0;
  for (size_t length = 1; length <= 16; ++length) {
    free *= 2;
    const int most = std::min(free - 1, largest_symbol + 1 - symbols);
    const int count = length == 16 ? most : random.in(0, std::min(most, 1 << (length / 2)));
    spec.counts[length] = static_cast<uint8_t>(std::min(count, 255));
    free -= spec.counts[length];
    symbols += spec.counts[length];
  }
  for (size_t i = 0; i < spec.symbols.size(); ++i) {
    spec.symbols[i] = static_cast<uint8_t>(random.in(0, largest_symbol));
  }
  return spec;
}

}  // namespace

TEST(huffman_tables_of_every_level_equal_the_scalar_ones) {
  Random random(5);
  const std::vector<SimdLevel> levels = test::machine_levels();
  for (int i = 0; i < 200; ++i) {
    const HuffmanSpec dc = random_spec(random, 15), ac = random_spec(random, 255);
    HuffmanTables wanted{}, found{};
    build_tables(dc, ac, SimdLevel::kScalar, wanted);
    for (const SimdLevel level : levels) {
      build_tables(dc, ac, level, found);
      CHECK(found.dc.entries == wanted.dc.entries);
      CHECK(found.ac.entries == wanted.ac.entries);
    }
  }
}
