// How the segments of a record are coded best: found by counting what its blocks have.
#pragma once

#include "decode/coefficients/record.h"
#include "transcode/jpeg_parts.h"

namespace fastload {

// Sets `coding` (all but the form, which it reads) and last_low of `record` for these blocks.
void choose_coding(const JpegParts& parts, CoefficientRecord& record);

}  // namespace fastload
