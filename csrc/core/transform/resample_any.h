// The passes of the resize for what the vector kernels do not take: other channels than RGB's, and
// 16 bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transform/axis.h"

namespace fastload {

// The weights of a filled axis into the order that horizontal_any() reads.
void pack_any(Axis& axis);

// Resizes `rows` lines of `channels` interleaved 8-bit channels; `axis` is packed by pack_any().
// Writes axis.count pixels of each.
void horizontal_any(const Axis& axis, size_t channels, const uint8_t* const* in,
                    uint8_t* const* out, int rows);

// The same with 16 bits, and an axis that fill_exact() has filled.
void horizontal_wide(const Axis& axis, size_t channels, const uint8_t* const* in,
                     uint8_t* const* out, int rows);

// Output line j, `values` numbers of 16 bits, from lines in[0 .. axis.taps).
void vertical_wide(const Axis& axis, int j, const uint8_t* const* in, size_t values, uint8_t* out);

}  // namespace fastload
