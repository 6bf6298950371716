// Coefficient records: JPEGs in a form of fastload's own.
#include "decode/codecs/codec.h"
#include "decode/coefficients/decoder.h"

namespace fastload {
namespace {

class CoefficientPictures final : public PictureDecoder {
 public:
  Outcome decode(const OpenPicture& picture, Rect roi, RowSink& sink) override {
    decoder_.open(picture.bytes, picture.limits);
    decoder_.decode(roi, sink, picture.format.channels == 1);
    return {};
  }

 private:
  CoefficientDecoder decoder_;
};

}  // namespace

constinit const CodecRow kCoefficientsCodec{Codec::kCoefficients,
                                            "coefficients",
                                            "coefficient record",
                                            "",
                                            "",
                                            begins_coefficients,
                                            probe_coefficients,
                                            make_decoder<CoefficientPictures>};

}  // namespace fastload
