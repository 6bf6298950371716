// How the segments of a record are coded best: found by counting what its blocks have.
#pragma once

#include "decode/coefficients/record.h"
#include "transcode/block_lists.h"

namespace fastload {

// Sets `coding` (all but the form, which it reads) and last_low of `record` for these blocks of the
// picture that its header says.
void choose_coding(const BlockLists& blocks, CoefficientRecord& record);

}  // namespace fastload
