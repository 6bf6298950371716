// The inner loops of the resize, once per instruction set; all give the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/kernels.h"
#include "transform/axis.h"

namespace fastload {

struct ResampleKernels {
  // Taps of an axis are padded to a multiple of these.
  int horizontal_multiple;
  int vertical_multiple;

  // Brings a filled axis into the layout that horizontal or vertical reads; called once per
  // picture.
  void (*pack_horizontal)(Axis& axis);
  void (*pack_vertical)(Axis& axis);

  // Resizes `rows` (at most kBatch) lines of RGB pixels. Reads at most RowSink::kSlack bytes behind
  // a source line, writes at most axis.stride * 3 + 64 bytes of an output line.
  void (*horizontal)(const Axis& axis, const uint8_t* const* in, uint8_t* const* out, int rows);

  // Output line j of the axis from lines in[0 .. axis.taps), `bytes` long. Reads and writes at most
  // up to the next multiple of 64 bytes.
  void (*vertical)(const Axis& axis, int j, const uint8_t* const* in, size_t bytes, uint8_t* out);

  static constexpr int kBatch = 4;
};

FASTLOAD_KERNEL(extern const ResampleKernels kResample);

}  // namespace fastload
