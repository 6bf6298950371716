#include "decode/webp.h"

#include <webp/decode.h>

#include <new>

#include "base/error.h"
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

}  // namespace

void WebpReader::decode(Bytes bytes, const ImageInfo& info, Rect roi, RowSink& sink) {
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config))
    throw Error(ErrorKind::kState, "libwebp is of another version");
  const Rect crop = with_margin(roi, info);
  const size_t stride = static_cast<size_t>(crop.width) * 3;
  const size_t size = stride * static_cast<size_t>(crop.height);
  uint8_t* const pixels = reserve_scratch(scratch_, size + RowSink::kSlack);
  config.options.use_cropping = 1;
  config.options.crop_left = crop.x;
  config.options.crop_top = crop.y;
  config.options.crop_width = crop.width;
  config.options.crop_height = crop.height;
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = pixels;
  config.output.u.RGBA.stride = static_cast<int>(stride);
  config.output.u.RGBA.size = size;
  const VP8StatusCode status = WebPDecode(bytes.data(), bytes.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (status == VP8_STATUS_OUT_OF_MEMORY) throw std::bad_alloc();
  if (status != VP8_STATUS_OK) {
    throw Error(ErrorKind::kDecode, std::string("WebP: ") + reason(status));
  }
  const size_t top = static_cast<size_t>(roi.y - crop.y),
               left = static_cast<size_t>(roi.x - crop.x);
  emit_rows(sink, pixels + top * stride + left * 3, stride, roi.height);
  trim_scratch(scratch_);
}

}  // namespace fastload
