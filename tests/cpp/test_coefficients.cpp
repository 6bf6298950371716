// decode/coefficients/: segments written and read again, and every level of this machine against
// the scalar one, also on damaged bytes.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "check.h"
#include "decode/coefficients/mask_codes.h"
#include "decode/coefficients/segment.h"
#include "levels.h"
#include "plain_jpeg.h"
#include "plain_segment.h"
#include "random.h"
#include "transcode/segment_writer.h"

namespace {

using namespace fastload;
using test::Random;
using Block = std::array<int16_t, 64>;  // zig-zag

JpegHeader header_of(int components, int h, int v) {
  JpegHeader header;
  header.component_count = components;
  header.components[0].h = static_cast<uint8_t>(h);
  header.components[0].v = static_cast<uint8_t>(v);
  header.mcu_width = 8 * h;
  header.mcu_height = 8 * v;
  return header;
}

const std::array<JpegHeader, 5> kHeaders{header_of(1, 1, 1), header_of(3, 1, 1), header_of(3, 2, 1),
                                         header_of(3, 2, 2), header_of(3, 1, 2)};

int drawn_value(Random& random, int largest) {
  // Small values are the most frequent ones, as in pictures.
  int most = largest;
  while (most > 1 && random.coin()) most /= 2;
  const int magnitude = random.in(1, std::max(1, most));
  return random.coin() ? magnitude : -magnitude;
}

// Up to position `last`; `is_corner`: only in the upper left 4 x 4, for which kernels have other ways.
Block drawn_block(Random& random, int largest, int last, int largest_dc, bool is_corner = false) {
  Block block{};
  block[0] = static_cast<int16_t>(random.in(-largest_dc - 1, largest_dc));
  const int end = random.in(0, last);
  for (int k = 1; k <= end; ++k) {
    const int place = kZigzag[static_cast<size_t>(k)];
    if (is_corner && (place / 8 > 3 || place % 8 > 3)) continue;
    if (random.in(0, last) > k / 2) {
      block[static_cast<size_t>(k)] = static_cast<int16_t>(drawn_value(random, largest));
    }
  }
  return block;
}

SegmentCoding drawn_coding(Random& random, CoefficientForm form) {
  SegmentCoding coding;
  coding.form = form;
  if (form == CoefficientForm::kFast) {
    for (uint8_t& length : coding.mask_lengths) length = static_cast<uint8_t>(random.in(0, 63));
    coding.mask_lengths[static_cast<size_t>(random.in(0, 15))] = 63;
  }
  for (uint8_t& rice : coding.rice) rice = static_cast<uint8_t>(random.in(0, kMaxRice));
  for (auto& kind : coding.low) {
    for (uint64_t& positions : kind) {
      const int last = random.in(0, 63);
      positions = ((uint64_t{2} << last) - 1) & ~uint64_t{1};
    }
  }
  return coding;
}

struct Packed {
  SegmentCoding coding;
  std::vector<SegmentShape> shapes;
  std::vector<std::vector<Block>> blocks;
  std::vector<std::vector<uint8_t>> bytes;  // each with the slack, of random bytes
  std::vector<size_t> sizes;

  [[nodiscard]] std::vector<SegmentSource> sources() const {
    std::vector<SegmentSource> all;
    for (size_t i = 0; i < shapes.size(); ++i) {
      all.push_back({bytes[i].data(), sizes[i], &shapes[i]});
    }
    return all;
  }
};

// Blocks as lists, made by a level's kernels.
struct Listed {
  std::vector<uint64_t> masks;
  std::vector<int16_t> dc, values;
  std::vector<size_t> starts;
  ListEnd end{};

  explicit Listed(size_t count)
      : masks(count), dc(count + 8), values(64 * (count + 1)), starts(count) {
    end = {masks.data(), dc.data(), starts.data(), values.data(), 0, 0};
  }
  Listed(SimdLevel level, std::vector<Block> blocks) : Listed(blocks.size()) {
    list_kernels(level).blocks(blocks[0].data(), blocks.size(), end);
    CHECK(std::all_of(blocks.begin(), blocks.end(), [](const Block& b) { return b == Block{}; }));
  }
  Listed(SimdLevel level, const SegmentBlocks& blocks, size_t count) : Listed(count) {
    list_kernels(level).segment(blocks, count, end);
  }
  [[nodiscard]] ListedSegment segment() const {
    return {masks.data(), dc.data(), values.data(), end.used};
  }
  [[nodiscard]] bool is_same(const Listed& other) const {
    return masks == other.masks && dc == other.dc && starts == other.starts &&
           end.used == other.end.used &&
           std::equal(values.begin(), values.begin() + static_cast<ptrdiff_t>(end.used),
                      other.values.begin());
  }
};

Packed drawn_segments(Random& random, CoefficientForm form, size_t count) {
  Packed packed;
  packed.coding = drawn_coding(random, form);
  const JpegHeader& header = kHeaders[static_cast<size_t>(random.in(0, 4))];
  const int largest =
      std::array{1, 3, 40, 127, 200, kMostMagnitude}[static_cast<size_t>(random.in(0, 5))];
  const int last = std::array{0, 5, 20, 63}[static_cast<size_t>(random.in(0, 3))];
  const int largest_dc = std::array{20, 300, kMostDc}[static_cast<size_t>(random.in(0, 2))];
  const bool is_corner = random.coin();
  for (size_t i = 0; i < count; ++i) {
    const int whole = coefficient_segment_mcus(header);
    packed.shapes.push_back(segment_shape(header, i + 1 < count ? whole : random.in(1, whole)));
    auto& blocks = packed.blocks.emplace_back();
    std::vector<const int16_t*> pointers;
    for (size_t b = 0; b < packed.shapes.back().block_count; ++b) {
      blocks.push_back(drawn_block(random, largest, last, largest_dc, is_corner));
    }
    for (const Block& block : blocks) pointers.push_back(block.data());
    auto& bytes = packed.bytes.emplace_back();
    test::pack_segment_plainly(packed.coding, packed.shapes.back(), pointers.data(), bytes);
    const MaskClasses classes(packed.coding);
    for (const SimdLevel level : test::machine_levels()) {
      const Listed listed(level, blocks);
      std::vector<uint8_t> same(kMostSegmentBytes);
      same.resize(FASTLOAD_KERNEL_AT(level, pack_segment)(
          packed.coding, classes, packed.shapes.back(), listed.segment(), same.data()));
      CHECK(same == bytes);
    }
    packed.sizes.push_back(bytes.size());
    for (size_t b = 0; b < kSegmentSlack; ++b) bytes.push_back(random.sample());
    bytes.shrink_to_fit();
  }
  return packed;
}

std::vector<Block> expanded(const SegmentBlocks& blocks, size_t count) {
  std::vector<Block> all(count);
  for (size_t i = 0; i < count; ++i) expand_block(blocks, i, all[i].data());
  return all;
}

// What was there before: kernels must not take it for what they have not written.
void scribble(SegmentBlocks& blocks) {
  for (auto* lists : {&blocks.bytes, &blocks.highs}) {
    for (auto& list : *lists) list.fill(int8_t{0x55});
  }
}

TEST(segments_come_back) {
  Random random(1);
  auto blocks = std::make_unique<std::array<SegmentBlocks, 9>>();
  for (int round = 0; round < 600; ++round) {
    const auto form = random.coin() ? CoefficientForm::kFast : CoefficientForm::kSmall;
    const auto count = static_cast<size_t>(random.in(1, 9));
    const Packed packed = drawn_segments(random, form, count);
    const auto sources = packed.sources();
    for (const SimdLevel level : test::machine_levels()) {
      for (SegmentBlocks& segment : *blocks) scribble(segment);
      CHECK(segment_kernels(level).unpack(packed.coding, sources.data(), count, blocks->data()));
      for (size_t i = 0; i < count; ++i) {
        const size_t size = packed.blocks[i].size();
        CHECK(expanded((*blocks)[i], size) == packed.blocks[i]);
        const Listed wanted(SimdLevel::kScalar, packed.blocks[i]);
        CHECK(Listed(level, (*blocks)[i], size).is_same(wanted));
      }
    }
  }
}

TEST(blocks_become_lists) {
  Random random(4);
  for (int round = 0; round < 400; ++round) {
    std::vector<Block> blocks;
    for (int count = random.in(1, 64); count > 0; --count) {
      const int largest =
          std::array{1, 127, 128, 255, 256, 32768}[static_cast<size_t>(random.in(0, 5))];
      blocks.push_back(drawn_block(random, std::min(largest, 32767), 63, kMostDc));
      if (largest == 32768) blocks.back()[static_cast<size_t>(random.in(1, 63))] = -32768;
    }
    std::vector<uint64_t> masks;
    std::vector<int16_t> dc, values;
    std::vector<size_t> starts;
    int largest = 0;
    for (const Block& block : blocks) {
      dc.push_back(block[0]);
      starts.push_back(values.size());
      masks.push_back(0);
      for (size_t k = 1; k < 64; ++k) {
        if (block[k] == 0) continue;
        masks.back() |= uint64_t{1} << k;
        values.push_back(block[k]);
        largest = std::max(largest, std::abs(int{block[k]}));
      }
    }
    dc.resize(dc.size() + 8);
    for (const SimdLevel level : test::machine_levels()) {
      Listed listed(level, blocks);
      CHECK_EQ(listed.end.largest, largest);
      CHECK_EQ(listed.end.used, values.size());
      listed.values.resize(values.size());
      CHECK(listed.masks == masks && listed.dc == dc && listed.starts == starts);
      CHECK(listed.values == values);
    }
  }
}

TEST(damaged_segments_are_judged_alike) {
  Random random(2);
  auto wanted = std::make_unique<SegmentBlocks>(), found = std::make_unique<SegmentBlocks>();
  int damaged = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto form = random.coin() ? CoefficientForm::kFast : CoefficientForm::kSmall;
    Packed packed = drawn_segments(random, form, 1);
    const size_t size = packed.sizes[0];
    if (random.coin()) {
      packed.sizes[0] = static_cast<size_t>(random.in(0, static_cast<int>(size)));
    }
    for (int flips = random.in(0, 3); flips > 0; --flips) {
      const auto at = static_cast<size_t>(random.in(0, static_cast<int>(size) - 1));
      packed.bytes[0][at] ^= static_cast<uint8_t>(1 << random.in(0, 7));
    }
    packed.bytes[0].resize(packed.sizes[0] + kSegmentSlack);
    packed.bytes[0].shrink_to_fit();
    const auto sources = packed.sources();
    const bool ok = unpack_segments_scalar(packed.coding, sources.data(), 1, wanted.get());
    damaged += ok ? 0 : 1;
    const size_t count = packed.shapes[0].block_count;
    for (const SimdLevel level : test::machine_levels()) {
      const UnpackSegments unpack = segment_kernels(level).unpack;
      scribble(*found);
      CHECK_EQ(unpack(packed.coding, sources.data(), 1, found.get()), ok);
      if (ok) CHECK(expanded(*found, count) == expanded(*wanted, count));
    }
  }
  CHECK(damaged > 500 && damaged < 2900);
}

TEST(transforms_equal_the_scalar_one) {
  Random random(3);
  auto blocks = std::make_unique<SegmentBlocks>();
  constexpr size_t kStride = 64 + 32;
  for (int round = 0; round < 1500; ++round) {
    const auto form = random.coin() ? CoefficientForm::kFast : CoefficientForm::kSmall;
    const Packed packed = drawn_segments(random, form, 1);
    const auto sources = packed.sources();
    const SegmentShape& shape = packed.shapes[0];
    std::array<uint16_t, 64> steps{};
    // Kernels have other ways where products or sums could be beyond 14 or 15 bits.
    const int largest =
        std::array{4, 12, 40, 63, 64, 127, 128, 255, 65535}[static_cast<size_t>(random.in(0, 8))];
    for (uint16_t& step : steps) step = static_cast<uint16_t>(random.in(0, largest));
    for (const SimdLevel level : test::machine_levels()) {
      const SegmentKernels& kernels = segment_kernels(level);
      scribble(*blocks);
      CHECK(kernels.unpack(packed.coding, sources.data(), 1, blocks.get()));
      size_t first = 0;
      for (size_t row = 0; row < shape.rows; ++row) {
        const size_t count = shape.blocks[row];
        std::vector<uint8_t> found(8 * kStride), wanted(8 * kStride);
        kernels.transform(*blocks, first, count, steps.data(), found.data(), kStride);
        for (size_t i = 0; i < count; ++i) {
          Block natural{};
          for (size_t k = 0; k < 64; ++k) natural[kZigzag[k]] = packed.blocks[0][first + i][k];
          test::PlainIdct::transform(natural.data(), steps.data(), wanted.data() + 8 * i, kStride, 1);
        }
        for (size_t y = 0; y < 8; ++y) {
          CHECK(std::memcmp(&found[y * kStride], &wanted[y * kStride], 8 * count) == 0);
        }
        first += count;
      }
    }
  }
}

TEST(mask_codes_are_complete_and_free_of_prefixes) {
  const MaskCodes& codes = mask_codes();
  for (const auto& table : codes.counts) {
    for (const uint16_t entry : table) CHECK((entry & 0xFF) <= 8 && entry >> 8 >= 1);
  }
  for (size_t context = 0; context < kByteContexts; ++context) {
    for (size_t bits = 0; bits < codes.bytes[context].size(); ++bits) {
      const uint16_t entry = codes.bytes[context][bits];
      const MaskCode& code = codes.write_bytes[context][entry & 0xFF];
      CHECK(entry >> 8 >= 1 && code.length == entry >> 8);
      CHECK_EQ(bits & ((size_t{1} << code.length) - 1), code.code);
    }
    // The last byte of a mask is never 0.
    CHECK_EQ(codes.write_bytes[context][0].length == 0, context % 3 == 0);
  }
}

}  // namespace
