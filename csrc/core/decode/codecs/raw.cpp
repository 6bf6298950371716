// Raw pixels, row-major; width, height, channels and bits are in the index.
#include "decode/codecs/codec.h"
#include "decode/rows.h"

namespace fastload {
namespace {

class RawDecoder final : public PictureDecoder {
 public:
  Outcome decode(const OpenPicture& picture, Rect roi, RowSink& sink) override {
    emit_picture(picture.bytes, picture.info.width, picture.format.pixel_bytes(), roi, scratch_,
                 sink);
    return {};
  }

 private:
  std::vector<uint8_t> scratch_;
};

}  // namespace

constinit const CodecRow kRawCodec{Codec::kRaw, "raw",   "raw",   "",
                                   "",          nullptr, nullptr, make_decoder<RawDecoder>};

}  // namespace fastload
