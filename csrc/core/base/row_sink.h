// How pixels travel from decode to transform to the slot: a few rows at a time, while they are in
// cache.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastload {

class RowSink {
 public:
  // Takes rows [y, y + count) of the picture, top to bottom, each row once. `pixels` is the first
  // pixel of row y, in the PixelFormat that both sides know (8-bit RGB where nothing else is said,
  // channels interleaved); rows lie `stride` bytes apart. The memory is borrowed for
  // the call. At least 64 readable bytes follow the last row's last pixel, so that vector loads may
  // run over. May throw Error; the caller then abandons the picture.
  virtual void rows(const uint8_t* pixels, size_t stride, int y, int count) = 0;

  // What was taken is void: the same picture comes again, from row 0, by another decoder.
  virtual void restart() = 0;

  // Readable bytes that a producer keeps behind the last pixel it hands over.
  static constexpr size_t kSlack = 64;

 protected:
  ~RowSink() = default;
};

}  // namespace fastload
