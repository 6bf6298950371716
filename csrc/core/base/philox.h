// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3" (SC'11). The same key and counter give the same four words everywhere, so nothing about
// threads, ranks or restarts can change a draw.
#pragma once

#include <array>
#include <cstdint>

namespace fastload {

using PhiloxWords = std::array<uint32_t, 4>;

struct PhiloxKey {
  uint32_t k0 = 0;
  uint32_t k1 = 0;
};

constexpr PhiloxWords philox4x32(PhiloxWords c, PhiloxKey k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k.k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k.k1, static_cast<uint32_t>(p0)};
    k.k0 += 0x9E3779B9u;
    k.k1 += 0xBB67AE85u;
  }
  return c;
}

// What a draw is for; part of the counter, so that operations never share numbers. A number keeps
// its meaning for good, or what was trained changes.
enum class DrawOp : uint32_t {
  kCrop = 1,
  kFlip = 2,
  kSubstitute = 3,  // drawn in Python: of a bad sample
  kCallable = 4,    // in Python: seeds of users' callables
  kErase = 5,       // in Python, too: 5 to 7 are of batch transforms
  kJitter = 6,
  kBatch = 7,
  kDecoder = 8,
  kFilter = 9,
  kZoomOut = 10,
  kIouCrop = 11,
  kResizeTo = 12,  // sizes and scales that are drawn
  kTurn = 13,
  kPartner = 14,  // in Python: other samples of a mosaic
  kMosaic = 15,
  kPerspective = 16,  // of a mosaic
  kMixUp = 17,        // of two samples
  kText = 18,         // in Python: one of several captions
  kPixels = 64,       // and up: see transform/pixels/operation.h
};
struct DrawName {
  const char* name;
  DrawOp op;
};
// Those that Python draws.
inline constexpr DrawName kPythonDraws[] = {
    {"substitute", DrawOp::kSubstitute}, {"partner", DrawOp::kPartner},
    {"callable", DrawOp::kCallable},     {"erase", DrawOp::kErase},
    {"jitter", DrawOp::kJitter},         {"batch", DrawOp::kBatch}};

// The randomness of one view of a sample in one epoch: key (seed, epoch), counter (sample id, draw,
// view, op, block).
struct SampleRng {
  PhiloxKey key;        // from the loader's seed and the epoch, see sample_rng()
  uint64_t sample = 0;  // sample id
  uint32_t draw = 0;    // 0, or the position in the epoch where a sampler may repeat a sample
  uint8_t view = 0;     // number of the view, where a sample has several
  uint16_t skip = 0;    // blocks that an operation's uses before this one have taken

  // Four fresh words. `block` < 2^16 counts the calls for one operation.
  [[nodiscard]] constexpr PhiloxWords words(DrawOp op, uint32_t block) const {
    return philox4x32(
        {static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32), draw,
         uint32_t{view} << 24 | (static_cast<uint32_t>(op) << 16) | ((block + skip) & 0xFFFFu)},
        key);
  }
};

// Folds a 64-bit seed and an epoch into Philox's 64-bit key: one Philox block of them.
constexpr PhiloxKey epoch_key(uint64_t seed, uint64_t epoch) {
  const PhiloxWords w = philox4x32(
      {static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32), 0x6661737Au, 0x6C6F6164u},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return {w[0], w[1]};
}

// Uniform in [0, 1) with 53 bits from two words.
constexpr double uniform_double(uint32_t high, uint32_t low) {
  const uint64_t bits = (uint64_t{high} << 32 | low) >> 11;
  return static_cast<double>(bits) * 0x1.0p-53;
}

// Uniform integer in [0, n), 1 <= n < 2^32, by multiplication (Lemire 2019, without the rejection
// step: the bias is below n / 2^64).
constexpr uint32_t uniform_below(uint32_t high, uint32_t low, uint32_t n) {
  const uint64_t bits = uint64_t{high} << 32 | low;
  return static_cast<uint32_t>((static_cast<unsigned __int128>(bits) * n) >> 64);
}

}  // namespace fastload
