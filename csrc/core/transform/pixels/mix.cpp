#include "transform/pixels/mix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "transform/pixels/normal.h"

namespace fastload {
namespace {

constexpr const char* kWeight[] = {"weight"};

// What a mix keeps: the picture that it began with, and its sums or its turns so far.
struct Kept {
  uint8_t* original;
  float* sums;
  uint8_t* turns;
};
Kept kept(Canvas& canvas) {
  const size_t bytes = canvas.picture().bytes();
  const size_t aligned = (bytes + 63) / 64 * 64;
  uint8_t* const memory = canvas.kept(aligned + bytes * sizeof(float));
  return {memory, reinterpret_cast<float*>(memory + aligned), memory + aligned};
}

// Pillow's Image.blend of bytes: between 0 and 1 the value is cut, beyond it is clamped, too.
void blend(const uint8_t* from, const uint8_t* to, float share, size_t bytes, uint8_t* out) {
  for (size_t i = 0; i < bytes; ++i) {
    const auto a = static_cast<float>(from[i]);
    const auto b = static_cast<float>(to[i]);
    out[i] = static_cast<uint8_t>(std::clamp(a + share * (b - a), 0.0F, 255.0F));
  }
}

void begin_sums(std::span<const double> numbers, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  const size_t bytes = picture.bytes();
  const Kept memory = kept(canvas);
  const auto weight = static_cast<float>(numbers[0]);
  std::memcpy(memory.original, picture.pixels, bytes);
  for (size_t i = 0; i < bytes; ++i) {
    memory.sums[i] = weight * static_cast<float>(picture.pixels[i]);
  }
}

void add_sums(std::span<const double> numbers, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  const size_t bytes = picture.bytes();
  const Kept memory = kept(canvas);
  const auto weight = static_cast<float>(numbers[0]);
  for (size_t i = 0; i < bytes; ++i) {
    memory.sums[i] += weight * static_cast<float>(picture.pixels[i]);
  }
  std::memcpy(picture.pixels, memory.original, bytes);
}

void end_sums(std::span<const double> numbers, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  const size_t bytes = picture.bytes();
  const Kept memory = kept(canvas);
  for (size_t i = 0; i < bytes; ++i) {
    picture.pixels[i] = static_cast<uint8_t>(std::clamp(memory.sums[i], 0.0F, 255.0F));
  }
  const auto share = static_cast<float>(numbers[0]);
  blend(memory.original, picture.pixels, share, bytes, picture.pixels);
}

void begin_turns(std::span<const double>, const PixelDraws&, Canvas& canvas) {
  const Kept memory = kept(canvas);
  std::memcpy(memory.original, canvas.picture().pixels, canvas.picture().bytes());
  std::memcpy(memory.turns, canvas.picture().pixels, canvas.picture().bytes());
}

void add_turn(std::span<const double> numbers, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  const Kept memory = kept(canvas);
  const auto share = static_cast<float>(numbers[0]);
  blend(memory.turns, picture.pixels, share, picture.bytes(), memory.turns);
  std::memcpy(picture.pixels, memory.original, picture.bytes());
}

void end_turns(std::span<const double>, const PixelDraws&, Canvas& canvas) {
  std::memcpy(canvas.picture().pixels, kept(canvas).turns, canvas.picture().bytes());
}

// Blocks of a stream, one by one.
class Blocks {
 public:
  Blocks(PhiloxKey key, uint32_t first) : key_(key), next_(first) {}
  PhiloxWords next() { return philox4x32({next_++, 0, 0, 0}, key_); }
  double uniform() {
    const PhiloxWords words = next();
    return uniform_double(words[0], words[1]);
  }
  [[nodiscard]] uint32_t spent() const { return next_; }

 private:
  PhiloxKey key_;
  uint32_t next_;
};

double gamma(Blocks& blocks, double alpha) {
  // Below 1 by the variate of alpha + 1 and a power of a uniform number.
  const double power = alpha < 1.0 ? std::pow(1.0 - blocks.uniform(), 1.0 / alpha) : 1.0;
  const double d = (alpha < 1.0 ? alpha + 1.0 : alpha) - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  for (;;) {
    const double x = standard_normal(blocks.next());
    const double root = 1.0 + c * x;
    const double u = 1.0 - blocks.uniform();
    if (!(root > 0)) continue;
    const double v = root * root * root;
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v * power;
  }
}

}  // namespace

constinit const PixelOperation kMixBegin{"mix_begin", 60, kWeight, begin_sums};
constinit const PixelOperation kMixAdd{"mix_add", 61, kWeight, add_sums};
constinit const PixelOperation kMixEnd{"mix_end", 62, kWeight, end_sums};
constinit const PixelOperation kTurnBegin{"turn_begin", 63, {}, begin_turns};
constinit const PixelOperation kTurnAdd{"turn_add", 64, kWeight, add_turn};
constinit const PixelOperation kTurnEnd{"turn_end", 65, {}, end_turns};

uint32_t draw_dirichlet(PhiloxKey key, uint32_t first, double alpha, std::span<double> weights) {
  Blocks blocks(key, first);
  for (double& weight : weights) weight = gamma(blocks, alpha);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= sum;
  return blocks.spent();
}

}  // namespace fastload
