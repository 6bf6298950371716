// JPEG files to coefficient records and back, byte for byte.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "decode/coefficients/segment.h"
#include "decode/decode.h"

namespace fastload {

// What is tried of a record before it is given. Both read the finished record again.
enum class CoefficientProof : uint8_t {
  kFile,    // the file rebuilt from it is the same, byte for byte
  kPixels,  // it has the file's coefficients; for those who keep the file
};

// The record of a JPEG. Throws Error(kDecode) with the reason for a file that decoders would not
// take as it is, or of which there is no proof, Error(kLimit) above the limits. Both proofs give
// the same record, but where kFile fails; and where bits before markers are filled up with zeros,
// which a record that is proved by kPixels does not know.
std::vector<uint8_t> to_coefficients(Bytes jpeg, CoefficientForm form,
                                     const DecodeLimits& limits = {},
                                     CoefficientProof proof = CoefficientProof::kFile);

// The JPEG of a record. Throws Error(kDecode) for a damaged one, Error(kLimit) above the limits.
std::vector<uint8_t> to_jpeg(Bytes record, const DecodeLimits& limits = {});

}  // namespace fastload
