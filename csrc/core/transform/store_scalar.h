// float32 to the 16-bit formats, rounded to nearest even: what vector kernels use for a line's
// rest.
#pragma once

#include <cstdint>

namespace fastload {

uint16_t to_float16(float value);   // IEEE binary16; overflow gives infinity. Not for NaN.
uint16_t to_bfloat16(float value);  // the upper half of binary32. Not for NaN.

}  // namespace fastload
