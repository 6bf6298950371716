#include "transform/erase.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

#include "transform/half_floats.h"
#include "transform/store.h"

namespace fastload {
namespace {

constexpr uint32_t kTries = 10;
constexpr uint32_t kNoise = 0x8000;  // the block that has the key of the first rectangle's noise

struct Box {
  int top;
  int left;
  int height;
  int width;
};

double uniform(uint32_t word, const std::array<double, 2>& ends) {
  return ends[0] + (ends[1] - ends[0]) * (static_cast<double>(word) * 0x1.0p-32);
}

int below(uint32_t word, int n) {
  return static_cast<int>(std::floor(static_cast<double>(word) * 0x1.0p-32 * n));
}

// Whether the tries of rectangle `number` of `count` have one that fits.
bool draw_box(const EraseSpec& spec, const SampleRng& rng, int number, int count, int width,
              int height, Box& box) {
  const double share = static_cast<double>(width) * height / count;
  for (uint32_t i = 1; i <= kTries; ++i) {
    const PhiloxWords words = rng.words(DrawOp::kErase, kTries * static_cast<uint32_t>(number) + i);
    const double area = share * uniform(words[0], spec.area);
    const double aspect = std::exp(uniform(words[1], spec.log_ratio));
    const double h = std::rint(std::sqrt(area * aspect));
    const double w = std::rint(std::sqrt(area / aspect));
    if (h >= height || w >= width) continue;
    box.height = static_cast<int>(h);
    box.width = static_cast<int>(w);
    box.top = below(words[2], height - box.height + 1);
    box.left = below(words[3], width - box.width + 1);
    return true;
  }
  return false;
}

// Standard normal numbers of 16 bits each: the quantiles of 65,536 equally likely ones. Their
// distribution function is within 2^-17 of the normal one; the greatest is 4.33.
class Normals {
 public:
  static const Normals& table() {
    static const Normals made;
    return made;
  }
  [[nodiscard]] float of(uint32_t bits) const {
    const auto size = std::bit_cast<uint32_t>(upper_[bits & (kHalf - 1)]);
    return std::bit_cast<float>(size | (bits & kHalf) << 16);  // the upper bit is the sign
  }

 private:
  static constexpr uint32_t kHalf = 1U << 15;

  Normals() : upper_(std::make_unique<float[]>(kHalf)) {
    double z = 0;
    for (uint32_t i = 0; i < kHalf; ++i) {
      const double wanted = 0.5 - (i + 0.5) / (2.0 * kHalf);
      for (int step = 0; step < 6; ++step) {  // Newton's, from below: it does not overshoot
        const double density = 0.3989422804014327 * std::exp(-0.5 * z * z);
        z += (0.5 * std::erfc(z * 0.7071067811865476) - wanted) / density;
      }
      upper_[i] = static_cast<float>(z);
    }
  }

  std::unique_ptr<float[]> upper_;
};

// Numbers for kPixels pixels at a time: eight of a block of words.
class Noise {
 public:
  static constexpr size_t kPixels = 16;

  explicit Noise(const PhiloxWords& key) : key_{key[0], key[1]}, normals_(Normals::table()) {}
  void draw(std::array<float, 3 * kPixels>& to) {
    for (size_t i = 0; i < to.size(); i += 8) {
      const PhiloxWords words = philox4x32({block_++, 0, 0, 0}, key_);
      for (size_t k = 0; k < 4; ++k) {
        to[i + 2 * k] = normals_.of(words[k] & 0xFFFF);
        to[i + 2 * k + 1] = normals_.of(words[k] >> 16);
      }
    }
  }

 private:
  PhiloxKey key_;
  const Normals& normals_;
  uint32_t block_ = 0;
};

// Where a picture's values are.
struct Values {
  uint8_t* data;
  size_t row;
  size_t pixel;
  size_t channel;
};

template <typename T, typename Convert>
void fill(const EraseSpec& spec, const Box& box, const PhiloxWords& key, const Values& to,
          Convert convert) {
  std::array<float, 3 * Noise::kPixels> values;
  for (size_t i = 0; i < values.size(); ++i) values[i] = spec.value[i % 3];
  const bool noisy = spec.fill == EraseSpec::Fill::kNoise;
  std::optional<Noise> noise;  // its table is made where it is wanted
  if (spec.fill != EraseSpec::Fill::kValue) noise.emplace(key);
  if (spec.fill == EraseSpec::Fill::kColor) {
    noise->draw(values);
    for (size_t i = 3; i < values.size(); ++i) values[i] = values[i % 3];
  }
  const auto width = static_cast<size_t>(box.width);
  for (int y = 0; y < box.height; ++y) {
    uint8_t* row = to.data + to.row * static_cast<size_t>(box.top + y) +
                   to.pixel * static_cast<size_t>(box.left);
    for (size_t x = 0; x < width; x += Noise::kPixels) {
      if (noisy) noise->draw(values);
      const size_t pixels = std::min(Noise::kPixels, width - x);
      uint8_t* at = row + x * to.pixel;
      for (size_t i = 0; i < pixels; ++i, at += to.pixel) {
        for (size_t c = 0; c < 3; ++c) {
          const T stored = convert(values[3 * i + c]);
          std::memcpy(at + c * to.channel, &stored, sizeof(T));
        }
      }
    }
  }
}

}  // namespace

void erase(const StoreSpec& spec, const SampleRng& rng, const StorePlace& place, int width,
           int height) {
  const EraseSpec& wanted = spec.erase;
  const PhiloxWords first = rng.words(DrawOp::kErase, 0);
  if (static_cast<double>(first[0]) * 0x1.0p-32 >= wanted.probability) return;
  const auto [least, most] = wanted.count;
  const int count = least + below(first[1], most - least + 1);
  const StorePlace dense = dense_place(place, spec, 3, width, height);
  const size_t size = dtype_size(spec.dtype);
  const Values to{static_cast<uint8_t*>(dense.data), dense.row_bytes,
                  spec.channels_last ? 3 * size : size,
                  spec.channels_last ? size : dense.plane_bytes};
  for (int number = 0; number < count; ++number) {
    Box box{};
    if (!draw_box(wanted, rng, number, count, width, height, box)) continue;
    const PhiloxWords key = rng.words(DrawOp::kErase, kNoise + static_cast<uint32_t>(number));
    switch (spec.dtype) {
      case DType::kFloat16:
        fill<uint16_t>(wanted, box, key, to, to_float16);
        break;
      case DType::kBfloat16:
        fill<uint16_t>(wanted, box, key, to, to_bfloat16);
        break;
      case DType::kUint8:
        fill<uint8_t>(wanted, box, key, to, [](float v) { return static_cast<uint8_t>(v); });
        break;
      default:
        fill<float>(wanted, box, key, to, [](float v) { return v; });
    }
  }
}

}  // namespace fastload
