// libjpeg-turbo's own verdict on a JPEG: a whole decode with its defaults, by the shortest path.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "decode/jpeg/parser.h"

namespace fastload::fuzz {

struct OraclePicture {
  bool clean = false;  // decoded to the end without a warning
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgb;  // height * width * 3 bytes; CMYK converted as cmyk.h says
};

// Not clean also above the limits of input.h.
OraclePicture oracle_decode(Bytes bytes);

// Whether libjpeg reads the header up to the first scan, without a warning; then `header` holds
// what it found: sizes, sampling, tables, restart interval.
bool oracle_header(Bytes bytes, JpegHeader& header);

}  // namespace fastload::fuzz
