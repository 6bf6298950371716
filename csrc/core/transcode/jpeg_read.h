// The coefficients of JPEG files that the engine's own scan reader does not take, by libjpeg.
#pragma once

#include "transcode/jpeg_parts.h"

namespace fastload {

// Adds all blocks to `parts.blocks`, which is open for `parts.header`. Throws Error(kDecode) for a
// file that is damaged or whose scans do not say every coefficient, Error(kLimit) for more than
// limits.max_scans of them.
void read_coefficients(Bytes file, const DecodeLimits& limits, JpegParts& parts);

}  // namespace fastload
