// RGB to gray.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/kernels.h"

namespace fastload {

// Pillow's convert("L") of `count` interleaved RGB pixels.
FASTLOAD_KERNEL(void gray_line(const uint8_t* rgb, size_t count, uint8_t* gray));

}  // namespace fastload
