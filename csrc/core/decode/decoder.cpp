// Chooses a back end for each picture and checks limits before anything is allocated.
#include "decode/jpeg/decoder.h"

#include "base/error.h"
#include "decode/decode.h"
#include "decode/formats.h"
#include "decode/jpeg/turbo.h"
#include "decode/png.h"
#include "decode/rows.h"
#include "decode/webp.h"

namespace fastload {
namespace {

std::string size_text(uint64_t width, uint64_t height) {
  return std::to_string(width) + "x" + std::to_string(height);
}

void check_limits(const ImageInfo& info, const DecodeLimits& limits) {
  const uint64_t pixels = uint64_t{info.width} * info.height;
  const std::string what =
      std::string(codec_name(info.codec)) + " of " + size_text(info.width, info.height);
  if (info.width > limits.max_side || info.height > limits.max_side) {
    throw Error(ErrorKind::kLimit, what + " pixels: a side may have at most " +
                                       std::to_string(limits.max_side) + " (max_side)");
  }
  if (pixels > limits.max_pixels) {
    throw Error(ErrorKind::kLimit, what + " = " + std::to_string(pixels) + " pixels: at most " +
                                       std::to_string(limits.max_pixels) +
                                       " are allowed (max_pixels)");
  }
}

void check_roi(Rect roi, const ImageInfo& info) {
  const bool inside = roi.x >= 0 && roi.y >= 0 && roi.width > 0 && roi.height > 0 &&
                      int64_t{roi.x} + roi.width <= int64_t{info.width} &&
                      int64_t{roi.y} + roi.height <= int64_t{info.height};
  if (inside) return;
  throw Error(ErrorKind::kValue, "roi x=" + std::to_string(roi.x) + " y=" + std::to_string(roi.y) +
                                     " width=" + std::to_string(roi.width) +
                                     " height=" + std::to_string(roi.height) +
                                     " is empty or outside the picture of " +
                                     size_text(info.width, info.height) + " pixels");
}

// `pixels` are whole rows of the picture; `readable` bytes may be read from it on. The last rows
// are copied if the sink's slack would lie behind that.
void emit_raw(const uint8_t* pixels, size_t readable, size_t width, size_t pixel_bytes, Rect roi,
              std::vector<uint8_t>& scratch, RowSink& sink) {
  const size_t stride = width * pixel_bytes;
  const size_t row_bytes = static_cast<size_t>(roi.width) * pixel_bytes;
  const size_t start =
      static_cast<size_t>(roi.y) * stride + static_cast<size_t>(roi.x) * pixel_bytes;
  int direct = roi.height;
  const auto end = [&](int rows) {
    return start + static_cast<size_t>(rows - 1) * stride + row_bytes;
  };
  while (direct > 0 && end(direct) + RowSink::kSlack > readable) --direct;
  emit_rows(sink, pixels + start, stride, direct);
  if (direct == roi.height) return;
  const auto rest = static_cast<size_t>(roi.height - direct);
  uint8_t* const copy = reserve_scratch(scratch, rest * row_bytes + RowSink::kSlack);
  for (size_t y = 0; y < rest; ++y) {
    const uint8_t* from = pixels + start + (static_cast<size_t>(direct) + y) * stride;
    std::copy_n(from, row_bytes, copy + y * row_bytes);
  }
  emit_rows(sink, copy, row_bytes, static_cast<int>(rest), direct);
}

}  // namespace

struct Decoder::Impl {
  DecodeLimits limits;
  FallbackDecode own_fallback;
  const FallbackDecode* fallback = &own_fallback;
  DecodeCounts counts;
  Bytes bytes;
  ImageInfo info;  // codec kUnknown: nothing is open
  FormatPlan plan;
  RgbImage by_fallback;
  JpegDecoder jpeg;
  JpegTurbo jpeg_turbo;
  PngReader png;
  WebpReader webp;
  std::vector<uint8_t> scratch;
  std::vector<uint8_t> converted;

  void decode(Rect roi, RowSink& sink, const EntryPoints& entries);
  void open_by_fallback();
  bool decode_own_jpeg(Rect roi, RowSink& sink, const EntryPoints& entries);
  void decode_jpeg(Rect roi, RowSink& sink, const EntryPoints& entries);
  void count_warning(bool warned) { counts.warnings += warned ? 1 : 0; }
};

void Decoder::Impl::open_by_fallback() {
  if (!*fallback) {
    throw Error(ErrorKind::kDecode,
                "this kind of " + std::string(codec_name(info.codec)) +
                    " has no native decoder; Pillow decodes it: pip install pillow");
  }
  RgbImage image = (*fallback)(bytes);
  const size_t size = size_t{image.width} * image.height * 3;
  if (image.width == 0 || image.height == 0 || image.pixels.size() < size + RowSink::kSlack) {
    throw Error(ErrorKind::kDecode, "the fallback decoder gave no whole picture");
  }
  info.width = image.width;
  info.height = image.height;
  check_limits(info, limits);
  by_fallback = std::move(image);
}

// False: not a file for the own decoder, or damage on the way.
bool Decoder::Impl::decode_own_jpeg(Rect roi, RowSink& sink, const EntryPoints& entries) {
  // Whether a file without its end marker counts as cut is libjpeg-turbo's to say.
  const size_t size = bytes.size();
  const bool has_end = bytes[size - 2] == 0xFF && bytes[size - 1] == 0xD9;
  if (!has_end && roi.y + roi.height == static_cast<int>(info.height)) return false;
  bool begun = false;
  try {
    if (!jpeg.open(bytes, limits)) return false;
    begun = true;
    jpeg.decode(roi, sink, entries, plan.decoded.channels == 1);
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDecode && error.kind() != ErrorKind::kFormat) throw;
    if (begun) sink.restart();
    return false;
  }
}

void Decoder::Impl::decode_jpeg(Rect roi, RowSink& sink, const EntryPoints& entries) {
  if ((info.flags & ImageInfo::kProgressive) == 0 && decode_own_jpeg(roi, sink, entries)) {
    ++counts.jpeg;
    return;
  }
  const bool gray = plan.decoded.channels == 1;
  count_warning(jpeg_turbo.decode(bytes, info, roi, limits.max_scans, sink, gray));
  ++counts.jpeg_turbo;
}

Decoder::Decoder(DecodeLimits limits, FallbackDecode fallback) : impl_(std::make_unique<Impl>()) {
  impl_->limits = limits;
  impl_->own_fallback = std::move(fallback);
}

void Decoder::configure(const DecodeLimits& limits, const FallbackDecode& fallback) {
  impl_->limits = limits;
  impl_->fallback = &fallback;
}

Decoder::~Decoder() = default;

ImageInfo Decoder::open(Bytes bytes, const PixelFormat& format) {
  Impl& d = *impl_;
  d.info = {};
  d.by_fallback = {};
  check_format(format);
  ImageInfo info = probe(bytes);
  check_limits(info, d.limits);
  d.plan = plan_format(bytes, info, format);
  d.bytes = bytes;
  d.info = info;
  if ((info.flags & ImageInfo::kNeedsFallback) == 0) return info;
  try {
    d.open_by_fallback();
  } catch (...) {
    d.info = {};
    throw;
  }
  return d.info;
}

ImageInfo Decoder::open_raw(Bytes bytes, uint32_t width, uint32_t height, const PixelFormat& stored,
                            const PixelFormat& format) {
  Impl& d = *impl_;
  d.info = {};
  d.by_fallback = {};
  check_format(stored);
  check_format(format);
  ImageInfo info;
  info.codec = Codec::kRaw;
  info.width = width;
  info.height = height;
  info.channels = static_cast<uint8_t>(stored.channels);
  if (stored.bits == 16) info.flags = ImageInfo::kSixteenBit;
  check_limits(info, d.limits);
  const uint64_t expected = uint64_t{width} * height * stored.pixel_bytes();
  if (expected == 0 || bytes.size() != expected) {
    const std::string what = stored.is_rgb8() ? "RGB" : "with " + format_text(stored);
    throw Error(ErrorKind::kDecode, "raw pixels: " + size_text(width, height) + " " + what +
                                        " needs " + std::to_string(expected) +
                                        " bytes, the record has " + std::to_string(bytes.size()));
  }
  d.plan = plan_raw(stored, format);
  d.bytes = bytes;
  d.info = info;
  return info;
}

void Decoder::decode(Rect roi, RowSink& sink, const EntryPoints& entries) {
  Impl& d = *impl_;
  if (d.info.codec == Codec::kUnknown) {
    throw Error(ErrorKind::kState, "decode() needs a successful open() before it");
  }
  check_roi(roi, d.info);
  if (d.plan.step == FormatPlan::Step::kNone) return d.decode(roi, sink, entries);
  FormatSink converting(d.plan.step, roi.width, d.converted, sink);
  d.decode(roi, converting, entries);
  trim_scratch(d.converted);
}

void Decoder::Impl::decode(Rect roi, RowSink& sink, const EntryPoints& entries) {
  if ((info.flags & ImageInfo::kNeedsFallback) != 0) {
    emit_raw(by_fallback.pixels.data(), by_fallback.pixels.size(), by_fallback.width, 3, roi,
             scratch, sink);
    ++counts.fallback;
    return;
  }
  switch (info.codec) {
    case Codec::kJpeg:
      decode_jpeg(roi, sink, entries);
      return;
    case Codec::kPng:
      count_warning(png.decode(bytes, info, roi, sink, plan.decoded));
      ++counts.png;
      return;
    case Codec::kWebp:
      webp.decode(bytes, info, roi, sink);
      ++counts.webp;
      return;
    default:  // kRaw: the others need the fallback
      emit_raw(bytes.data(), bytes.size(), info.width, plan.decoded.pixel_bytes(), roi, scratch,
               sink);
      ++counts.raw;
  }
}

const DecodeCounts& Decoder::counts() const { return impl_->counts; }

}  // namespace fastload
