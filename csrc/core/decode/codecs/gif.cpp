// GIF: Pillow decodes it. The size, so that limits are checked before Pillow sees the bytes.
#include "decode/codecs/codec.h"
#include "decode/codecs/header_bytes.h"

namespace fastload {
namespace {

bool begins(Bytes bytes) { return starts_with(bytes, "GIF87a") || starts_with(bytes, "GIF89a"); }

ImageInfo probe_gif(Bytes bytes) {
  if (bytes.size() < 10) return fallback_info(Codec::kGif, 0, 0);
  return fallback_info(Codec::kGif, little16(&bytes[6]), little16(&bytes[8]));
}

}  // namespace

constinit const CodecRow kGifCodec{Codec::kGif, "gif",  "GIF",     "GIF",
                                   ".gif",      begins, probe_gif, nullptr};

}  // namespace fastload
