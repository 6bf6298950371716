// Which encoded pictures can be opened in which format, and the conversions that codecs do not do.
#pragma once

#include <cstdint>
#include <vector>

#include "base/pixel_format.h"
#include "base/row_sink.h"
#include "base/shown.h"
#include "decode/decode.h"

namespace fastload {

// How a picture becomes one of a wanted format.
struct FormatPlan {
  enum class Step : uint8_t {
    kNone,
    kGray,    // RGB to gray, 8 bits
    kRepeat,  // gray to RGB, 8 bits
    kWiden,   // ids of 8 bits to 16
    kWhite,   // RGB and alpha over white, to RGB, 8 bits
    kWhiteGray,  // the same, to gray
  };
  PixelFormat decoded;  // what the codec is asked for
  Step step = Step::kNone;
};

// The plan for an encoded picture; `info` is probe()'s answer for `bytes`:
//   8 bits, 3 or 1 channels   every codec. Gray is Pillow's convert("L") of the RGB pixels.
//   8 bits, 2 or 4 channels   PNG with alpha and as many channels. 16 bits are scaled.
//   16 bits, 1 or 3 channels  PNG of 16 bits; 1 of gray ones only. Alpha is dropped.
//   16 bits, 2 or 4 channels  PNG of 16 bits with alpha and as many channels.
//   ids                       PNG with a palette (its indices) or gray (its values, as stored), of
//                             at most as many bits.
// Throws Error(kDecode) for all else, and says what to do. On white, 8 bits of 1 or 3 channels are
// those of the composed picture.
FormatPlan plan_format(Bytes bytes, const ImageInfo& info, const PixelFormat& wanted,
                       const Shown& shown = {});

// The same for raw pixels: as they are, or as above. Ids are of one channel.
FormatPlan plan_raw(const PixelFormat& stored, const PixelFormat& wanted);

// Does a plan's step between decoder and sink.
class FormatSink final : public RowSink {
 public:
  FormatSink(FormatPlan::Step step, int width, std::vector<uint8_t>& scratch, RowSink& next)
      : step_(step), width_(static_cast<size_t>(width)), scratch_(scratch), next_(next) {}
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override;
  void restart() override { next_.restart(); }

 private:
  FormatPlan::Step step_;
  size_t width_;
  std::vector<uint8_t>& scratch_;
  RowSink& next_;
};

}  // namespace fastload
