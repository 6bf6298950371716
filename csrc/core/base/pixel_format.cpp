#include "base/pixel_format.h"

#include "base/error.h"

namespace fastload {

void check_format(const PixelFormat& format) {
  const bool legal = format.channels >= 1 && format.channels <= PixelFormat::kMaxChannels &&
                     (format.bits == 8 || format.bits == 16) &&
                     (!format.ids || format.channels == 1);
  if (legal) return;
  throw Error(ErrorKind::kValue,
              "A picture has 1 to " + std::to_string(PixelFormat::kMaxChannels) +
                  " channels (ids: 1) of 8 or 16 bits. Found: " + std::to_string(format.channels) +
                  " channels of " + std::to_string(format.bits) + " bits" +
                  (format.ids ? ", ids." : "."));
}

}  // namespace fastload
