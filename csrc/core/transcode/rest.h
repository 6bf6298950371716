// The rest of a coefficient record: a JPEG file without its entropy-coded data.
//
//   0    u8   bit 0: the bits that fill up the last byte before a marker (zeros or ones);
//             bit 1: what follows is a zlib stream (RFC 1950) with the preset dictionary of
//             rest_dictionary.cpp, not the bytes themselves; other bits are 0
//   1    u32  how many bytes they are, little-endian
//   5    ...
//
// The bytes are the file's, less what lies between each SOS segment and the marker that ends its
// scan (restart markers lie between, too).
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace fastload {

constexpr size_t kMaxFrameBytes = size_t{64} << 20;

struct JpegRest {
  std::vector<uint8_t> frame;
  bool pads_with_ones = true;
};

// The shorter of both ways, for padding with ones. Throws Error(kDecode) for more than
// kMaxFrameBytes.
std::vector<uint8_t> pack_rest(Bytes frame);

// Of a rest that was packed.
void set_padding(std::vector<uint8_t>& rest, bool pads_with_ones);

// Throws Error(kDecode) for what is no rest.
JpegRest unpack_rest(Bytes rest);

}  // namespace fastload
