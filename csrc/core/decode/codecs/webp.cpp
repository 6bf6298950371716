// WebP by libwebp: lossy and lossless, not animated.
#include <webp/decode.h>

#include <algorithm>
#include <array>
#include <new>
#include <vector>

#include "base/error.h"
#include "decode/codecs/codec.h"
#include "decode/codecs/header_bytes.h"
#include "decode/rows.h"

namespace fastload {
namespace {

const char* reason(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      return "the file ends early";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "a feature that libwebp does not decode";
    default:
      return "the data is damaged";
  }
}

// libwebp's fancy upsampling mixes a neighbouring chroma sample in, and its crop begins at even
// pixels: a margin of one chroma sample, snapped outwards, makes the crop equal the full decode.
Rect with_margin(Rect roi, const ImageInfo& info) {
  const int right = std::min(roi.x + roi.width + 2, static_cast<int>(info.width));
  const int bottom = std::min(roi.y + roi.height + 2, static_cast<int>(info.height));
  const int left = std::max(0, roi.x - 2) & ~1;
  const int top = std::max(0, roi.y - 2) & ~1;
  return {left, top, right - left, bottom - top};
}

bool begins(Bytes bytes) { return starts_with(bytes, "RIFF") && starts_with(bytes, "WEBP", 8); }

// libwebp reads the RIFF header itself.
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

class WebpDecoder final : public PictureDecoder {
 public:
  Outcome decode(const OpenPicture& picture, Rect roi, RowSink& sink) override;

 private:
  std::vector<uint8_t> scratch_;  // the ROI and its margin
};

// The pixels of `crop`, rows without gaps, to a buffer of `size` bytes: RGB, the colour under alpha
// kept, or of 4 bytes with alpha.
VP8StatusCode decode_crop(Bytes bytes, Rect crop, int pixel_bytes, uint8_t* pixels, size_t size) {
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config))
    throw Error(ErrorKind::kState, "libwebp is of another version");
  config.options.use_cropping = 1;
  config.options.crop_left = crop.x;
  config.options.crop_top = crop.y;
  config.options.crop_width = crop.width;
  config.options.crop_height = crop.height;
  config.output.colorspace = pixel_bytes == 4 ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = pixels;
  config.output.u.RGBA.stride = crop.width * pixel_bytes;
  config.output.u.RGBA.size = size;
  const VP8StatusCode status = WebPDecode(bytes.data(), bytes.size(), &config);
  WebPFreeDecBuffer(&config.output);
  return status;
}

// libwebp knows several words for a lack of memory. A user's abort is always one: nobody else
// aborts. Damage may be one, where alpha or Huffman tables have no room: asked again, it decodes,
// or finds no memory for what comes before.
bool may_be_lack(VP8StatusCode status) { return status == VP8_STATUS_BITSTREAM_ERROR; }
bool is_lack(VP8StatusCode status) {
  return status == VP8_STATUS_OUT_OF_MEMORY || status == VP8_STATUS_USER_ABORT;
}

// An alpha chunk: a byte of method, filter, preprocessing and reserved bits, then its pixels as
// they are, or as a lossless picture's behind its header.
bool is_damaged_alpha(Bytes chunk, const ImageInfo& info) {
  if (chunk.size() < 2 || (chunk[0] & 3) > 1 || (chunk[0] & 0xE0) != 0) return true;
  if ((chunk[0] & 3) == 0) return chunk.size() - 1 < uint64_t{info.width} * info.height;
  const uint32_t sides = (info.width - 1) | (info.height - 1) << 14;
  std::vector<uint8_t> picture{0x2F};
  for (int shift = 0; shift < 32; shift += 8) {
    picture.push_back(static_cast<uint8_t>(sides >> shift));
  }
  picture.insert(picture.end(), chunk.begin() + 1, chunk.end());
  std::array<uint8_t, 3> pixel{};
  const VP8StatusCode status = decode_crop(picture, {0, 0, 1, 1}, 3, pixel.data(), pixel.size());
  return status != VP8_STATUS_OK && !is_lack(status);
}

// libwebp 1.6 calls it a lack of memory where an alpha chunk is damaged before its first row.
bool has_damaged_alpha(Bytes bytes, const ImageInfo& info) {
  constexpr size_t kHead = 8, kFirst = 30;  // of a chunk; behind RIFF, WEBP and VP8X
  Bytes alpha;
  for (size_t at = kFirst; at + kHead < bytes.size() && !starts_with(bytes, "VP8", at);) {
    const size_t size = std::min<size_t>(little32(&bytes[at + 4]), bytes.size() - at - kHead);
    if (starts_with(bytes, "ALPH", at)) alpha = bytes.subspan(at + kHead, size);
    at += kHead + size + (size & 1);
  }
  return alpha.data() != nullptr && is_damaged_alpha(alpha, info);
}

PictureDecoder::Outcome WebpDecoder::decode(const OpenPicture& picture, Rect roi, RowSink& sink) {
  const Rect crop = with_margin(roi, picture.info);
  const int pixel_bytes = picture.format.channels;
  const size_t stride = static_cast<size_t>(crop.width * pixel_bytes);
  const size_t size = stride * static_cast<size_t>(crop.height);
  uint8_t* const pixels = reserve_scratch(scratch_, size + RowSink::kSlack);
  VP8StatusCode status = decode_crop(picture.bytes, crop, pixel_bytes, pixels, size);
  if (may_be_lack(status)) status = decode_crop(picture.bytes, crop, pixel_bytes, pixels, size);
  if (is_lack(status) && has_damaged_alpha(picture.bytes, picture.info)) {
    status = VP8_STATUS_BITSTREAM_ERROR;
  }
  if (is_lack(status)) throw std::bad_alloc();
  if (status != VP8_STATUS_OK) {
    throw Error(ErrorKind::kDecode, std::string("WebP: ") + reason(status));
  }
  const size_t top = static_cast<size_t>(roi.y - crop.y),
               left = static_cast<size_t>(roi.x - crop.x);
  emit_rows(sink, pixels + top * stride + left * static_cast<size_t>(pixel_bytes), stride, roi.height);
  trim_scratch(scratch_);
  return {};
}

}  // namespace

constinit const CodecRow kWebpCodec{Codec::kWebp, "webp", "WebP",     "WEBP",
                                    ".webp",      begins, probe_webp, make_decoder<WebpDecoder>};

}  // namespace fastload
