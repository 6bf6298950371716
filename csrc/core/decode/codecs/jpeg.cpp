// JPEG: by the decoder in decode/jpeg/, or by libjpeg-turbo where that does not take the file.
#include <cstdio>
// jpeglib.h needs size_t and FILE from <cstdio>.
#include <jpeglib.h>

#include <algorithm>

#include "base/error.h"
#include "decode/codecs/codec.h"
#include "decode/codecs/header_bytes.h"
#include "decode/jpeg/decoder.h"
#include "decode/jpeg/turbo.h"

namespace fastload {
namespace {

constexpr uint8_t kTem = 0x01, kDht = 0xC4, kJpg = 0xC8, kDac = 0xCC, kRst0 = 0xD0, kRst7 = 0xD7,
                  kSoi = 0xD8, kEoi = 0xD9, kSos = 0xDA;

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorKind::kDecode, "JPEG: " + what);
}

bool is_frame(uint8_t marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != kDht && marker != kJpg && marker != kDac;
}

// Only what libjpeg-turbo's 8-bit interface decodes: sequential and progressive DCT.
bool is_native(uint8_t marker) {
  if (marker <= 0xC2) return true;
#ifdef D_ARITH_CODING_SUPPORTED
  if (marker == 0xC9 || marker == 0xCA) return true;
#endif
  return false;
}

ImageInfo read_frame(uint8_t marker, Bytes segment) {
  if (segment.size() < 6) fail("the frame header is too short");
  const uint8_t precision = segment[0], components = segment[5];
  ImageInfo info;
  info.codec = Codec::kJpeg;
  info.height = big16(&segment[1]);
  info.width = big16(&segment[3]);
  info.channels = components;
  if (info.width == 0 || info.height == 0 || components == 0) {
    fail("the frame header says " + std::to_string(info.width) + "x" + std::to_string(info.height) +
         " pixels with " + std::to_string(components) + " components; all must be at least 1");
  }
  if (segment.size() != 6 + 3 * size_t{components}) fail("the frame header's length is wrong");
  if ((marker & 3) == 2) info.flags |= ImageInfo::kProgressive;  // SOF2, 6, 10 and 14
  if (precision > 8) info.flags |= ImageInfo::kSixteenBit;
  if (precision != 8 || !is_native(marker)) info.flags |= ImageInfo::kNeedsFallback;
  return info;
}

// Walks the marker segments up to the frame header (ITU-T T.81, B.2), as libjpeg does.
ImageInfo probe_jpeg(Bytes bytes) {
  size_t at = 2;  // behind SOI
  while (true) {
    // Garbage between segments is skipped, and 0xFF may be repeated before a marker's code.
    while (at < bytes.size() && bytes[at] != 0xFF) ++at;
    while (at < bytes.size() && bytes[at] == 0xFF) ++at;
    if (at >= bytes.size()) fail("the file ends early (no frame header)");
    const uint8_t marker = bytes[at++];
    if (marker == 0 || marker == kTem || (marker >= kRst0 && marker <= kRst7)) continue;
    if (marker == kSoi) fail("a second start of image before the frame header");
    if (marker == kEoi || marker == kSos) fail("no frame header before the image data");
    if (at + 2 > bytes.size()) fail("the file ends early (no frame header)");
    // A length counts its own two bytes; libjpeg takes one that does not for a segment without data.
    const size_t length = std::max<size_t>(big16(&bytes[at]), 2);
    if (at + length > bytes.size()) fail("the file ends early (no frame header)");
    if (is_frame(marker)) return read_frame(marker, bytes.subspan(at + 2, length - 2));
    at += length;
  }
}

bool begins(Bytes bytes) { return starts_with(bytes, "\xFF\xD8\xFF"); }

class JpegPictures final : public PictureDecoder {
 public:
  Outcome decode(const OpenPicture& picture, Rect roi, RowSink& sink) override {
    if (picture.loaded != nullptr) {
      decode_part(picture, roi, sink);
      return {};
    }
    const bool progressive = (picture.info.flags & ImageInfo::kProgressive) != 0;
    if (!progressive && decode_own(picture, roi, sink)) return {};
    const bool warned = turbo_.decode(picture.bytes, picture.info, roi, picture.limits.max_scans,
                                      sink, picture.format.channels == 1);
    return {warned, true};
  }

 private:
  bool decode_own(const OpenPicture& picture, Rect roi, RowSink& sink);
  void decode_part(const OpenPicture& picture, Rect roi, RowSink& sink);

  JpegDecoder own_;
  JpegTurbo turbo_;
};

// All that would be libjpeg-turbo's needs the whole file, also the verdict on one without its end.
void JpegPictures::decode_part(const OpenPicture& picture, Rect roi, RowSink& sink) {
  const Bytes bytes = picture.bytes;
  const size_t size = bytes.size();
  const bool has_end = size >= 2 && bytes[size - 2] == 0xFF && bytes[size - 1] == 0xD9;
  const bool to_end = roi.y + roi.height == static_cast<int>(picture.info.height);
  try {
    if ((to_end && !has_end) || !own_.open(bytes, picture.limits, picture.loaded)) {
      throw NeedsWhole();
    }
    own_.decode(roi, sink, picture.entries, picture.format.channels == 1);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDecode && error.kind() != ErrorKind::kFormat) throw;
    throw NeedsWhole();
  }
}

// False: not a file for the own decoder, or damage on the way.
bool JpegPictures::decode_own(const OpenPicture& picture, Rect roi, RowSink& sink) {
  const Bytes bytes = picture.bytes;
  // Whether a file without its end marker counts as cut is libjpeg-turbo's to say.
  const size_t size = bytes.size();
  const bool has_end = bytes[size - 2] == 0xFF && bytes[size - 1] == 0xD9;
  if (!has_end && roi.y + roi.height == static_cast<int>(picture.info.height)) return false;
  bool begun = false;
  try {
    if (!own_.open(bytes, picture.limits)) return false;
    begun = true;
    own_.decode(roi, sink, picture.entries, picture.format.channels == 1);
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDecode && error.kind() != ErrorKind::kFormat) throw;
    if (begun) sink.restart();
    return false;
  }
}

}  // namespace

constinit const CodecRow kJpegCodec{Codec::kJpeg, "jpeg", "JPEG",     "JPEG",
                                    ".jpg",       begins, probe_jpeg, make_decoder<JpegPictures>};

}  // namespace fastload
