// What a pixel is made of, on its way from decoder to batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fastload {

// Pixels lie interleaved, without gaps; 16 bits in the machine's byte order, at any address.
struct PixelFormat {
  int channels = 3;  // 1 to kMaxChannels; ids have one
  int bits = 8;      // of a channel: 8 or 16
  bool ids = false;  // class or instance ids, which are never scaled, mixed or converted

  static constexpr int kMaxChannels = 255;  // what the index has room for

  bool operator==(const PixelFormat&) const = default;
  [[nodiscard]] size_t channel_bytes() const { return static_cast<size_t>(bits) / 8; }
  [[nodiscard]] size_t pixel_bytes() const {
    return static_cast<size_t>(channels) * channel_bytes();
  }
  // What the vector kernels take.
  [[nodiscard]] bool is_rgb8() const { return *this == PixelFormat{}; }
};

// "3 channels of 8 bits", "ids of 16 bits".
inline std::string format_text(const PixelFormat& format) {
  const std::string bits = " of " + std::to_string(format.bits) + " bits";
  if (format.ids) return "ids" + bits;
  return std::to_string(format.channels) + (format.channels == 1 ? " channel" : " channels") + bits;
}

// Throws Error(kValue) for what is no format.
void check_format(const PixelFormat& format);

}  // namespace fastload
