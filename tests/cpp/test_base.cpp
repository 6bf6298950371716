// base/: known vectors, and fast paths against the slow ones beside them.
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/crc32c.h"
#include "base/philox.h"
#include "check.h"

namespace {

using fastload::Bytes;

// Bytes from Philox, so that a failure can be repeated.
std::vector<uint8_t> random_bytes(size_t size, uint32_t seed) {
  std::vector<uint8_t> out(size + 16);
  for (size_t i = 0; i < size; i += 16) {
    const auto words = fastload::philox4x32({static_cast<uint32_t>(i), 0, 0, 0}, {seed, 0});
    std::memcpy(out.data() + i, words.data(), 16);
  }
  out.resize(size);
  return out;
}

}  // namespace

// kat_vectors of Random123 1.14, the authors' own distribution: philox4x32, 10 rounds.
TEST(philox_known_vectors) {
  using fastload::philox4x32;
  using fastload::PhiloxWords;
  constexpr uint32_t ones = 0xffffffffu;
  CHECK((philox4x32({0, 0, 0, 0}, {0, 0}) ==
         PhiloxWords{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  CHECK((philox4x32({ones, ones, ones, ones}, {ones, ones}) ==
         PhiloxWords{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  CHECK((philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u},
                    {0xa4093822u, 0x299f31d0u}) ==
         PhiloxWords{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(sample_rng_separates_samples_draws_and_operations) {
  using fastload::DrawOp;
  const fastload::PhiloxKey key = fastload::epoch_key(1, 0);
  const fastload::SampleRng rng{key, 5, 0};
  CHECK((rng.words(DrawOp::kCrop, 0) == fastload::SampleRng{key, 5, 0}.words(DrawOp::kCrop, 0)));
  CHECK((rng.words(DrawOp::kCrop, 0) != rng.words(DrawOp::kFlip, 0)));
  CHECK((rng.words(DrawOp::kCrop, 0) != rng.words(DrawOp::kCrop, 1)));
  CHECK((rng.words(DrawOp::kCrop, 0) != fastload::SampleRng{key, 6, 0}.words(DrawOp::kCrop, 0)));
  CHECK((rng.words(DrawOp::kCrop, 0) != fastload::SampleRng{key, 5, 1}.words(DrawOp::kCrop, 0)));
  // Sample ids above 2^32 use the counter's second word.
  const uint64_t high = (uint64_t{1} << 32) + 5;
  CHECK((rng.words(DrawOp::kCrop, 0) != fastload::SampleRng{key, high, 0}.words(DrawOp::kCrop, 0)));
}

TEST(uniform_draws_stay_in_range) {
  CHECK_EQ(fastload::uniform_double(0, 0), 0.0);
  CHECK(fastload::uniform_double(0xffffffffu, 0xffffffffu) < 1.0);
  CHECK_EQ(fastload::uniform_below(0, 0, 7), 0u);
  CHECK_EQ(fastload::uniform_below(0xffffffffu, 0xffffffffu, 7), 6u);
  CHECK_EQ(fastload::uniform_below(0xffffffffu, 0xffffffffu, 0xffffffffu), 0xfffffffeu);
}

// RFC 3720 (iSCSI), appendix B.4, and the check value of the CRC catalogue.
TEST(crc32c_known_vectors) {
  std::array<uint8_t, 32> bytes{};
  CHECK_EQ(fastload::crc32c(bytes), 0x8a9136aau);
  bytes.fill(0xff);
  CHECK_EQ(fastload::crc32c(bytes), 0x62a8ab43u);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  CHECK_EQ(fastload::crc32c(bytes), 0x46dd794eu);
  const std::string digits = "123456789";
  CHECK_EQ(fastload::crc32c(Bytes(reinterpret_cast<const uint8_t*>(digits.data()), digits.size())),
           0xe3069283u);
  CHECK_EQ(fastload::crc32c(Bytes()), 0u);
}

TEST(crc32c_equals_its_table_at_every_length_and_alignment) {
  const std::vector<uint8_t> bytes = random_bytes(300, 1);
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t size = 0; begin + size <= bytes.size(); ++size) {
      const Bytes part(bytes.data() + begin, size);
      CHECK_EQ(fastload::crc32c(part), fastload::crc32c_table(part));
    }
  }
}

// Longer than the stretches that are worked on in turns, and around their ends.
TEST(crc32c_equals_its_table_where_it_is_long) {
  const std::vector<uint8_t> bytes = random_bytes(20000, 3);
  for (size_t begin = 0; begin < 3; ++begin) {
    for (const size_t size : {1024, 3071, 3072, 3073, 6143, 6144, 6160, 9215, 9216, 19990}) {
      const Bytes part(bytes.data() + begin, size);
      CHECK_EQ(fastload::crc32c(part, 5), fastload::crc32c_table(part, 5));
    }
  }
}

TEST(crc32c_continues) {
  const std::vector<uint8_t> bytes = random_bytes(1000, 2);
  const Bytes all(bytes);
  for (size_t cut = 0; cut <= bytes.size(); cut += 37) {
    CHECK_EQ(fastload::crc32c(all.subspan(cut), fastload::crc32c(all.first(cut))),
             fastload::crc32c(all));
  }
}

TEST(simd_level_can_be_lowered_only) {
  const fastload::SimdLevel best = fastload::simd_level();
  const char* cap = std::getenv("FASTLOAD_SIMD");  // ctest runs this file with "scalar", too
  if (cap != nullptr && std::strcmp(cap, "scalar") == 0) {
    CHECK(best == fastload::SimdLevel::kScalar);
  }
  fastload::set_simd_level("scalar");
  CHECK(fastload::simd_level() == fastload::SimdLevel::kScalar);
  fastload::set_simd_level("avx512");
  CHECK(fastload::simd_level() >=
        best);  // what the machine has, which FASTLOAD_SIMD may have capped
#if defined(__aarch64__)
  CHECK(fastload::simd_level() == fastload::SimdLevel::kNeon);
  fastload::set_simd_level("avx2");
  CHECK(fastload::simd_level() == fastload::SimdLevel::kNeon);
#else
  fastload::set_simd_level("neon");
  CHECK(fastload::simd_level() == fastload::SimdLevel::kScalar);
#endif
  fastload::set_simd_level(fastload::simd_level_name(best));
  CHECK(fastload::simd_level() == best);
  CHECK_THROWS(kValue, "sse9", fastload::set_simd_level("sse9"));
}
