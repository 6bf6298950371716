// What torchvision does to the colours of a uint8 tensor, which is not what it does to a Pillow
// picture: torch computes in float32, one kernel after the other, and truncates. Each product and
// sum below is rounded where torch rounds it, its fused ones once. A mean is torch's but for the
// order of its sum.
#include <algorithm>
#include <cstring>

#include "transform/pixels/pointwise.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

constexpr const char* kFactor[] = {"factor"};

// a + b * c, rounded once: products of bytes with floats, and their sums, are exact in double.
float fused(float a, float b, float c) {
  return static_cast<float>(static_cast<double>(a) + static_cast<double>(b) * c);
}

// rgb_to_grayscale in float32.
float luma(const uint8_t* pixel) {
  const float red = static_cast<float>(pixel[0]) * 0.2989f;
  return fused(fused(red, pixel[1], 0.587f), pixel[2], 0.114f);
}

uint8_t truncated(float value) { return static_cast<uint8_t>(std::clamp(value, 0.0f, 255.0f)); }

struct Blend {
  explicit Blend(double factor)
      : own(static_cast<float>(factor)), other(static_cast<float>(1.0 - factor)) {}
  [[nodiscard]] uint8_t operator()(uint8_t value, float from) const {
    return truncated(fused(static_cast<float>(value) * own, from, other));
  }
  float own, other;
};

void grayscale(std::span<const double>, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  uint8_t* const end = picture.pixels + picture.bytes();
  for (uint8_t* p = picture.pixels; p != end; p += 3) std::memset(p, truncated(luma(p)), 3);
}

void contrast(std::span<const double> numbers, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  uint64_t sum = 0;
  const uint8_t* const end = picture.pixels + picture.bytes();
  for (const uint8_t* p = picture.pixels; p != end; p += 3) sum += static_cast<uint64_t>(luma(p));
  const double pixels = static_cast<double>(picture.bytes()) / 3;
  const auto mean = static_cast<float>(static_cast<double>(sum) / pixels);
  const Blend blend(numbers[0]);
  ByteTable table;
  for (size_t i = 0; i < table.size(); ++i) table[i] = blend(static_cast<uint8_t>(i), mean);
  point_kernels().look_up(picture.pixels, picture.bytes(), table);
}

void saturation(std::span<const double> numbers, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  const Blend blend(numbers[0]);
  uint8_t* const end = picture.pixels + picture.bytes();
  for (uint8_t* p = picture.pixels; p != end; p += 3) {
    const auto gray = static_cast<float>(static_cast<int>(luma(p)));
    for (int c = 0; c < 3; ++c) p[c] = blend(p[c], gray);
  }
}

// _rgb_to_hsv, the hue moved, _hsv_to_rgb.
void turn(uint8_t* pixel, float shift) {
  constexpr float kUnit = 1.0f / 255.0f;
  const float r = static_cast<float>(pixel[0]) * kUnit;
  const float g = static_cast<float>(pixel[1]) * kUnit;
  const float b = static_cast<float>(pixel[2]) * kUnit;
  const float most = std::max({r, g, b}), least = std::min({r, g, b});
  const bool gray = most == least;
  const float range = most - least;
  const float s = range / (gray ? 1.0f : most);
  const float by = gray ? 1.0f : range;
  const float rc = (most - r) / by, gc = (most - g) / by, bc = (most - b) / by;
  float h = most == r ? bc - gc : most == g ? rc + 2.0f - bc : gc + 4.0f - rc;
  h = h * (1.0f / 6.0f) + 1.0f;
  if (h >= 1.0f) h -= 1.0f;
  h += shift;
  if (h < 0.0f) h += 1.0f;
  if (h >= 1.0f) h -= 1.0f;
  const float sixths = h * 6.0f;
  const int sector = static_cast<int>(sixths);
  const float part = s * (sixths - static_cast<float>(sector));
  const float rest = 1.0f - s;
  const auto unit = [](float value) { return std::clamp(value, 0.0f, 1.0f); };
  const auto byte = [](float value) { return static_cast<uint8_t>(value * 255.999f); };
  const uint8_t v = byte(most);
  const uint8_t p = byte(unit(rest * most));
  const uint8_t q = byte(unit((1.0f - part) * most));
  const uint8_t t = byte(unit((part + rest) * most));
  const uint8_t colours[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
  std::copy_n(colours[sector % 6], 3, pixel);
}

void hue(std::span<const double> numbers, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  const auto shift = static_cast<float>(numbers[0]);
  uint8_t* const end = picture.pixels + picture.bytes();
  for (uint8_t* p = picture.pixels; p != end; p += 3) turn(p, shift);
}

}  // namespace

constinit const PixelOperation kTensorGrayscale{"tensor_grayscale", 20, {}, grayscale, nullptr,
                                                true};
constinit const PixelOperation kTensorContrast{"tensor_contrast", 21, kFactor, contrast};
constinit const PixelOperation kTensorSaturation{"tensor_saturation", 22, kFactor, saturation,
                                                 nullptr, true};
constinit const PixelOperation kTensorHue{"tensor_hue", 23, kFactor, hue, nullptr, true};

}  // namespace fastload
