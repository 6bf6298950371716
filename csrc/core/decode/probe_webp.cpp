// WebP: libwebp reads the RIFF header itself.
#include <webp/decode.h>

#include "base/error.h"
#include "decode/probe_parts.h"

namespace fastload {

ImageInfo probe_webp(Bytes bytes) {
  WebPBitstreamFeatures features;
  const VP8StatusCode status = WebPGetFeatures(bytes.data(), bytes.size(), &features);
  if (status == VP8_STATUS_NOT_ENOUGH_DATA) {
    throw Error(ErrorKind::kDecode, "WebP: the file ends early (no frame header)");
  }
  if (status != VP8_STATUS_OK || features.width <= 0 || features.height <= 0) {
    throw Error(ErrorKind::kDecode, "WebP: the header is damaged (libwebp status " +
                                        std::to_string(static_cast<int>(status)) + ")");
  }
  ImageInfo info;
  info.codec = Codec::kWebp;
  info.width = static_cast<uint32_t>(features.width);
  info.height = static_cast<uint32_t>(features.height);
  info.channels = features.has_alpha ? 4 : 3;
  // libwebp proper decodes no animations (its demux library does).
  if (features.has_animation) info.flags |= ImageInfo::kAnimated | ImageInfo::kNeedsFallback;
  return info;
}

}  // namespace fastload
