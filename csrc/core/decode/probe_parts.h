// Header readers, one for each codec; probe() chooses. All are O(header) and allocate nothing.
#pragma once

#include "decode/decode.h"

namespace fastload {

ImageInfo probe_jpeg(Bytes bytes);
ImageInfo probe_png(Bytes bytes);
ImageInfo probe_webp(Bytes bytes);
// GIF, BMP and TIFF: sizes where they are easily found, else 0. Never throws.
ImageInfo probe_other(Codec codec, Bytes bytes);

inline uint32_t big16(const uint8_t* p) { return static_cast<uint32_t>(p[0]) << 8 | p[1]; }
inline uint32_t big32(const uint8_t* p) { return big16(p) << 16 | big16(p + 2); }
inline uint32_t little16(const uint8_t* p) { return static_cast<uint32_t>(p[1]) << 8 | p[0]; }
inline uint32_t little32(const uint8_t* p) { return little16(p + 2) << 16 | little16(p); }

}  // namespace fastload
