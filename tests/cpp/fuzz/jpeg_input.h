// Where the JPEG begins in an input of the target that is linked in; mutator.cpp changes it there.
#pragma once

#include <cstddef>

#include "base/bytes.h"

namespace fastload::fuzz {

size_t jpeg_begin(Bytes input);  // input.size(): nowhere

}  // namespace fastload::fuzz
