// Chooses a decoder for each picture and checks limits before anything is allocated.
#include <optional>

#include "base/error.h"
#include "decode/codecs/codec.h"
#include "decode/formats.h"
#include "decode/orientation.h"
#include "decode/rows.h"

namespace fastload {
namespace {

std::string size_text(uint64_t width, uint64_t height) {
  return std::to_string(width) + "x" + std::to_string(height);
}

void check_limits(const ImageInfo& info, const DecodeLimits& limits) {
  const uint64_t pixels = uint64_t{info.width} * info.height;
  const auto what = [&] {
    return std::string(codec_name(info.codec)) + " of " + size_text(info.width, info.height);
  };
  if (info.width > limits.max_side || info.height > limits.max_side) {
    throw Error(ErrorKind::kLimit, what() + " pixels: a side may have at most " +
                                       std::to_string(limits.max_side) + " (max_side)");
  }
  if (pixels > limits.max_pixels) {
    throw Error(ErrorKind::kLimit, what() + " = " + std::to_string(pixels) + " pixels: at most " +
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

}  // namespace

struct Decoder::Impl {
  DecodeLimits limits;
  FallbackDecode own_fallback;
  const FallbackDecode* fallback = &own_fallback;
  DecodeCounts counts;
  Bytes bytes;
  std::optional<LoadedBytes> loaded;  // nothing: bytes are all
  ImageInfo info;                     // as stored; codec kUnknown: nothing is open
  PixelFormat format;                 // what decode() hands over
  FormatPlan plan;
  Orientation orientation;
  RgbImage by_fallback;
  std::array<std::unique_ptr<PictureDecoder>, kCodecs> decoders;  // by codec
  std::vector<uint8_t> scratch;
  std::vector<uint8_t> converted;
  std::vector<uint8_t> turned;

  [[nodiscard]] ImageInfo shown_info() const;
  void begin(Bytes picture, const ImageInfo& of, const PixelFormat& wanted);
  void convert(Rect roi, RowSink& sink, const EntryPoints& entries);
  void decode(Rect roi, RowSink& sink, const EntryPoints& entries);
  void open_by_fallback(const Shown& shown);
  PictureDecoder& decoder_of(Codec codec);
};

// Sizes as they are shown.
ImageInfo Decoder::Impl::shown_info() const {
  ImageInfo shown = info;
  if (orientation.swaps()) std::swap(shown.width, shown.height);
  return shown;
}

// The picture is open from now on.
void Decoder::Impl::begin(Bytes picture, const ImageInfo& of, const PixelFormat& wanted) {
  bytes = picture;
  format = wanted;
  info = of;
}

void Decoder::Impl::open_by_fallback(const Shown& shown) {
  if (!*fallback) {
    throw Error(ErrorKind::kDecode,
                "this kind of " + std::string(codec_name(info.codec)) +
                    " has no native decoder; Pillow decodes it (fastload[pil])");
  }
  RgbImage image = (*fallback)(bytes, shown);
  const size_t size = size_t{image.width} * image.height * 3;
  if (image.width == 0 || image.height == 0 || image.pixels.size() < size + RowSink::kSlack) {
    throw Error(ErrorKind::kDecode, "the fallback decoder gave no whole picture");
  }
  info.width = image.width;
  info.height = image.height;
  check_limits(info, limits);
  by_fallback = std::move(image);
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

ImageInfo shown_info(Bytes bytes, ImageInfo info, const Shown& shown) {
  if (shown.turned && orientation_of(bytes).swaps()) std::swap(info.width, info.height);
  return info;
}

ImageInfo Decoder::open(Bytes bytes, const PixelFormat& format, const Shown& shown) {
  Impl& d = *impl_;
  d.info = {};
  d.orientation = {};
  d.by_fallback = {};
  d.loaded.reset();
  check_format(format);
  ImageInfo info = probe(bytes);
  check_limits(info, d.limits);
  d.plan = plan_format(bytes, info, format, shown);
  const bool by_fallback = (info.flags & ImageInfo::kNeedsFallback) != 0;
  if (shown.turned && !by_fallback) d.orientation = orientation_of(bytes);
  d.begin(bytes, info, format);
  if (!by_fallback) return d.shown_info();
  try {
    d.open_by_fallback(shown);
  } catch (...) {
    d.info = {};
    throw;
  }
  return d.info;
}

ImageInfo Decoder::open_part(Bytes bytes, const LoadedBytes& loaded, const PixelFormat& format,
                             const Shown& shown) {
  Impl& d = *impl_;
  d.info = {};
  d.orientation = {};
  d.by_fallback = {};
  check_format(format);
  try {
    if (bytes.size() != loaded.size()) throw NeedsWhole();
    const Bytes head = bytes.first(loaded.head);
    const ImageInfo info = probe(head);
    if (info.codec != Codec::kJpeg || info.flags != 0) throw NeedsWhole();
    check_limits(info, d.limits);
    // The parts that were read are of the rows as they are stored.
    if (shown.turned && orientation_of(head).turns()) throw NeedsWhole();
    d.plan = plan_format(head, info, format);
    d.loaded = loaded;
    d.begin(bytes, info, format);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kMemory) throw;
    throw NeedsWhole();
  }
  return d.info;
}

ImageInfo Decoder::open_raw(Bytes bytes, uint32_t width, uint32_t height, const PixelFormat& stored,
                            const PixelFormat& format) {
  Impl& d = *impl_;
  d.info = {};
  d.orientation = {};
  d.by_fallback = {};
  d.loaded.reset();
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
  d.begin(bytes, info, format);
  return info;
}

void Decoder::decode(Rect roi, RowSink& sink, const EntryPoints& entries) {
  Impl& d = *impl_;
  if (d.info.codec == Codec::kUnknown) {
    throw Error(ErrorKind::kState, "decode() needs a successful open() before it");
  }
  check_roi(roi, d.shown_info());
  if (!d.orientation.turns()) return d.convert(roi, sink, entries);
  UprightSink turning(d.orientation, roi, d.format.pixel_bytes(), d.turned, sink);
  const int width = static_cast<int>(d.info.width), height = static_cast<int>(d.info.height);
  d.convert(d.orientation.stored(roi, width, height), turning, entries);
  turning.finish();
  trim_scratch(d.turned);
}

// Decodes a part of the picture as it is stored, in the format it was opened in.
void Decoder::Impl::convert(Rect roi, RowSink& sink, const EntryPoints& entries) {
  if (plan.step == FormatPlan::Step::kNone) return decode(roi, sink, entries);
  FormatSink converting(plan.step, roi.width, converted, sink);
  decode(roi, converting, entries);
  trim_scratch(converted);
}

PictureDecoder& Decoder::Impl::decoder_of(Codec codec) {
  std::unique_ptr<PictureDecoder>& decoder = decoders[static_cast<size_t>(codec)];
  if (decoder == nullptr) decoder = codec_row(codec).make();
  return *decoder;
}

void Decoder::Impl::decode(Rect roi, RowSink& sink, const EntryPoints& entries) {
  if ((info.flags & ImageInfo::kNeedsFallback) != 0) {
    const Bytes pixels{by_fallback.pixels.data(), by_fallback.pixels.size()};
    emit_picture(pixels, by_fallback.width, 3, roi, scratch, sink);
    ++counts[kByFallback];
    return;
  }
  const OpenPicture picture{bytes,  info,    plan.decoded,
                            limits, entries, loaded ? &*loaded : nullptr};
  const PictureDecoder::Outcome outcome = decoder_of(info.codec).decode(picture, roi, sink);
  ++counts[outcome.by_turbo ? kByTurbo : static_cast<size_t>(info.codec)];
  counts[kWarnings] += outcome.warned ? 1 : 0;
}

const DecodeCounts& Decoder::counts() const { return impl_->counts; }

}  // namespace fastload
