#include "decode/formats.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "decode/codecs/header_bytes.h"
#include "decode/gray.h"
#include "decode/rows.h"

namespace fastload {
namespace {

using Step = FormatPlan::Step;

constexpr PixelFormat kRgb{}, kGray{1, 8, false}, kRgba{4, 8, false};

// What the header of a PNG says beyond ImageInfo. probe() has checked that it is there.
struct PngKind {
  int depth;
  bool palette;
  bool gray;
  bool alpha;
  [[nodiscard]] bool sixteen() const { return depth == 16; }
};

PngKind png_kind(Bytes bytes) {
  constexpr size_t kDepth = 24, kColour = 25;
  const int colour = bytes[kColour];
  return {bytes[kDepth], colour == 3, (colour & 2) == 0, (colour & 4) != 0};
}

[[noreturn]] void refuse(const std::string& what, const PixelFormat& wanted,
                         const std::string& advice) {
  throw Error(ErrorKind::kDecode,
              what + " cannot be opened as " + format_text(wanted) + ": " + advice);
}

FormatPlan plan_ids(const std::string& what, bool is_ids, int bits, const PixelFormat& wanted) {
  if (!is_ids) {
    refuse(what, wanted,
           "a mask is a PNG with a palette or of one gray channel, or raw pixels of one channel. "
           "Convert it to class ids first, and save those losslessly");
  }
  if (bits > wanted.bits) refuse(what, wanted, "declare the field as Mask(bits=16)");
  if (bits == 16 || wanted.bits == 8) return {wanted, Step::kNone};
  return {{1, 8, true}, Step::kWiden};
}

std::string png_text(const PngKind& png) {
  const std::string depth = std::to_string(png.depth) + "-bit ";
  const std::string alpha = png.alpha ? " with alpha" : "";
  return (png.depth == 8 ? "an " : "a ") + depth +
         (png.palette ? "palette"
          : png.gray  ? "gray"
                      : "RGB") +
         " PNG" + alpha;
}

FormatPlan plan_png(const PngKind& png, const PixelFormat& wanted) {
  const std::string what = png_text(png);
  if (wanted.ids) {
    return plan_ids(what, (png.palette || png.gray) && !png.alpha, png.depth, wanted);
  }
  const int stored = (png.gray ? 1 : 3) + (png.alpha ? 1 : 0);
  if (wanted.bits == 16 && !png.sixteen()) {
    refuse(what, wanted, "it has fewer bits. Declare the field as Image(bits=8)");
  }
  if (wanted == kGray) return {png.gray ? kGray : kRgb, png.gray ? Step::kNone : Step::kGray};
  if (wanted == kRgb) return {kRgb, Step::kNone};
  const bool has_alpha_wanted = wanted.channels == stored && png.alpha;
  const bool is_colour = wanted.bits == 16 && wanted.channels == 3;
  const bool is_gray = wanted.bits == 16 && wanted.channels == 1 && png.gray;
  if (has_alpha_wanted || is_colour || is_gray) return {wanted, Step::kNone};
  refuse(what, wanted,
         "it has " + std::to_string(stored) + (stored == 1 ? " channel" : " channels") +
             ". Declare the field as Image(channels=" + std::to_string(stored) +
             "), or convert the picture");
}

// Whether what the core decodes may be transparent somewhere: alpha, or a PNG's tRNS chunk.
bool has_alpha(Bytes bytes, const ImageInfo& info) {
  if ((info.flags & ImageInfo::kNeedsFallback) != 0) return false;
  if (info.codec == Codec::kWebp) return info.channels == 4;
  return info.codec == Codec::kPng && (png_kind(bytes).alpha || png_has_chunk(bytes, "tRNS"));
}

}  // namespace

FormatPlan plan_format(Bytes bytes, const ImageInfo& info, const PixelFormat& wanted,
                       const Shown& shown) {
  if (shown.on_white && (wanted == kRgb || wanted == kGray) && has_alpha(bytes, info)) {
    return {kRgba, wanted == kRgb ? Step::kWhite : Step::kWhiteGray};
  }
  if (info.codec == Codec::kPng) return plan_png(png_kind(bytes), wanted);
  if (wanted == kRgb) return {kRgb, Step::kNone};
  const bool is_jpeg = info.codec == Codec::kJpeg || info.codec == Codec::kCoefficients;
  const bool is_gray_jpeg =
      is_jpeg && info.channels == 1 && (info.flags & ImageInfo::kNeedsFallback) == 0;
  if (wanted == kGray && is_gray_jpeg) return {kGray, Step::kNone};
  if (wanted == kGray) return {kRgb, Step::kGray};
  const std::string what = "a " + std::string(codec_name(info.codec));
  if (wanted.ids) return plan_ids(what, false, 8, wanted);
  refuse(what, wanted, "it gives 1 or 3 channels of 8 bits. Save the picture as PNG or raw pixels");
}

FormatPlan plan_raw(const PixelFormat& stored, const PixelFormat& wanted) {
  if (stored == wanted) return {wanted, Step::kNone};
  const std::string what = "a raw picture of " + format_text(stored);
  if (wanted.ids) return plan_ids(what, stored.channels == 1, stored.bits, wanted);
  if (stored == kRgb && wanted == kGray) return {stored, Step::kGray};
  if (stored == kGray && wanted == kRgb) return {stored, Step::kRepeat};
  refuse(what, wanted,
         "declare the field as Image(channels=" + std::to_string(stored.channels) +
             ", bits=" + std::to_string(stored.bits) + "), or convert the picture");
}

namespace {

void to_rgb(const uint8_t* from, size_t width, uint8_t* to) {
  for (size_t x = 0; x < width; ++x) std::memset(to + 3 * x, from[x], 3);
}

// Pillow's alpha_composite over opaque white, pixel by pixel: in 1/128 of a level, rounded, with
// its quotient by 255.
void to_white(const uint8_t* from, size_t width, uint8_t* to) {
  for (size_t x = 0; x < width; ++x, from += 4, to += 3) {
    const uint32_t alpha = from[3];
    for (size_t channel = 0; channel < 3; ++channel) {
      const uint32_t sum = (from[channel] * alpha + 255 * (255 - alpha)) * 128 + 0x4000;
      to[channel] = static_cast<uint8_t>((((sum >> 8) + sum) >> 8) >> 7);
    }
  }
}

void to_white_gray(const uint8_t* from, size_t width, uint8_t* to) {
  auto& gray = FASTLOAD_KERNEL_AT(simd_level(), gray_line);
  uint8_t rgb[3 * 64];
  for (size_t x = 0; x < width; x += 64) {
    const size_t count = std::min<size_t>(64, width - x);
    to_white(from + 4 * x, count, rgb);
    gray(rgb, count, to + x);
  }
}

void to_wide(const uint8_t* from, size_t width, uint8_t* to) {
  for (size_t x = 0; x < width; ++x) {
    const uint16_t id = from[x];
    std::memcpy(to + 2 * x, &id, 2);
  }
}

// A step's function, and the bytes of a pixel that it makes.
std::pair<decltype(&to_rgb), size_t> step_of(Step step) {
  switch (step) {
    case Step::kGray:
      return {FASTLOAD_KERNEL_AT(simd_level(), gray_line), 1};
    case Step::kRepeat:
      return {to_rgb, 3};
    case Step::kWhite:
      return {to_white, 3};
    case Step::kWhiteGray:
      return {to_white_gray, 1};
    default:
      return {to_wide, 2};
  }
}

}  // namespace

void FormatSink::rows(const uint8_t* pixels, size_t stride, int y, int count) {
  const auto [convert, bytes] = step_of(step_);
  const size_t row = width_ * bytes;
  for (int done = 0; done < count; done += kChunkRows) {
    const int n = std::min(kChunkRows, count - done);
    uint8_t* const to = reserve_scratch(scratch_, row * kChunkRows + kSlack);
    for (int i = 0; i < n; ++i) {
      convert(pixels + stride * static_cast<size_t>(done + i), width_,
              to + row * static_cast<size_t>(i));
    }
    next_.rows(to, row, y + done, n);
  }
}

}  // namespace fastload
