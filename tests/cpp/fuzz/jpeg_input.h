// Where the JPEG begins in an input of the target that is linked in; mutator.cpp changes it there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace fastload::fuzz {

size_t jpeg_begin(Bytes input);  // input.size(): nowhere

// Changes such an input as LLVMFuzzerCustomMutator does.
size_t mutate_jpeg_input(uint8_t* data, size_t size, size_t max_size, unsigned seed);

}  // namespace fastload::fuzz
