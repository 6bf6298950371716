// Reading numbers and marks in the headers of files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"

namespace fastload {

inline bool starts_with(Bytes bytes, std::string_view magic, size_t at = 0) {
  return bytes.size() >= at + magic.size() &&
         std::equal(magic.begin(), magic.end(), bytes.begin() + static_cast<ptrdiff_t>(at),
                    [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; });
}

inline uint32_t big16(const uint8_t* p) { return static_cast<uint32_t>(p[0]) << 8 | p[1]; }
inline uint32_t big32(const uint8_t* p) { return big16(p) << 16 | big16(p + 2); }
inline uint32_t little16(const uint8_t* p) { return static_cast<uint32_t>(p[1]) << 8 | p[0]; }
inline uint32_t little32(const uint8_t* p) { return little16(p + 2) << 16 | little16(p); }


// Whether a PNG has a chunk of that type before its pixels.
inline bool png_has_chunk(Bytes bytes, std::string_view type) {
  constexpr size_t kSignature = 8, kHead = 8, kCrc = 4;
  size_t at = kSignature;
  while (bytes.size() - at >= kHead) {
    const size_t length = big32(&bytes[at]);
    if (starts_with(bytes, type, at + 4)) return true;
    if (starts_with(bytes, "IDAT", at + 4) || length > bytes.size() - at - kHead) return false;
    at += kHead + length;
    if (bytes.size() - at < kCrc) return false;
    at += kCrc;
  }
  return false;
}

}  // namespace fastload
