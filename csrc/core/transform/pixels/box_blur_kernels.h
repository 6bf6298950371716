// The loops of box_blur, once per instruction set; all give the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/kernels.h"
#include "transform/pixels/operation.h"

namespace fastload {

inline constexpr int kBoxPasses = 3;

// A pixel's neighbours up to `reach` away weigh `inner` / 2^24, the two after them `outer` / 2^24;
// beyond an edge stands its pixel.
struct Box {
  int reach = 0;
  uint32_t inner = 0;
  uint32_t outer = 0;
};

// The largest reach of boxes whose sums fit into 16 bits with a sign.
inline constexpr int kNarrowReach = 63;

// Columns that are blurred together, in bytes: their rows stay in the first cache.
inline constexpr int kBoxStrip = 64;

// Rows that are blurred together.
inline constexpr int kBoxRows = 4;

// Two such sets of lines with their surroundings, or two strips.
inline size_t box_blur_line(const Box& box, int width) {
  const size_t pixels = static_cast<size_t>(width) + 2 * (static_cast<size_t>(box.reach) + 1);
  return (3 * pixels + 2 * RowSink::kSlack - 1) / RowSink::kSlack * RowSink::kSlack;
}
inline size_t box_blur_scratch(const Box& box, int width, int height) {
  const size_t strip = size_t{kBoxStrip} * static_cast<size_t>(height);
  const size_t lines = kBoxRows * box_blur_line(box, width);
  return 2 * (lines > strip ? lines : strip);
}

// Blurs in place, three times along rows, then columns. `scratch` has box_blur_scratch() bytes.
FASTLOAD_KERNEL(void box_blur(const Box& box, const Picture& picture, uint8_t* scratch));

}  // namespace fastload
