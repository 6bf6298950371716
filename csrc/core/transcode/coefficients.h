// JPEG files to coefficient records and back, byte for byte.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "decode/coefficients/segment.h"
#include "decode/decode.h"

namespace fastload {

// The record of a JPEG. It was read again, and the file rebuilt from it is the same. Throws
// Error(kDecode) with the reason for a file that does not come back identical or that decoders
// would not take as it is, Error(kLimit) above the limits.
std::vector<uint8_t> to_coefficients(Bytes jpeg, CoefficientForm form,
                                     const DecodeLimits& limits = {});

// The JPEG of a record. Throws Error(kDecode) for a damaged one, Error(kLimit) above the limits.
std::vector<uint8_t> to_jpeg(Bytes record, const DecodeLimits& limits = {});

}  // namespace fastload
