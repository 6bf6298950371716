// Decoding of single pictures, for tests, the pack stage and Python code that wants one image.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>

#include "convert.h"
#include "decode/codecs/codec.h"
#include "fallback.h"
#include "gil.h"
#include "paths.h"
#include "register.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

using RoiArg = std::optional<std::tuple<int, int, int, int>>;
using RgbArray = nb::ndarray<nb::numpy, uint8_t, nb::shape<-1, -1, 3>, nb::c_contig>;

// Collects the rows of one picture.
class ArraySink final : public RowSink {
 public:
  void restart() override {}
  ArraySink(int width, int height, size_t pixel_bytes)
      : row_bytes_(static_cast<size_t>(width) * pixel_bytes),
        pixels_(new uint8_t[row_bytes_ * static_cast<size_t>(height)]) {}

  void rows(const uint8_t* pixels, size_t stride, int y, int count) override {
    for (int i = 0; i < count; ++i) {
      std::memcpy(pixels_.get() + static_cast<size_t>(y + i) * row_bytes_,
                  pixels + static_cast<size_t>(i) * stride, row_bytes_);
    }
  }

  uint8_t* release() { return pixels_.release(); }

 private:
  size_t row_bytes_;
  std::unique_ptr<uint8_t[]> pixels_;
};

// A Decoder that Python threads may share: one call at a time.
class PyDecoder {
 public:
  PyDecoder(const DecodeLimits& limits, nb::object fallback)
      : decoder_(limits, make_fallback(std::move(fallback))) {}

  RgbArray decode_rgb(const BytesArg& data, const RoiArg& roi) {
    const Pixels found = decode_pixels(data, {3, 8, false}, std::nullopt, roi);
    return {found.data, {found.height, found.width, 3}, found.owner};
  }

  RgbArray decode_raw(const BytesArg& data, uint32_t width, uint32_t height, const RoiArg& roi) {
    const Pixels found = decode_pixels(data, {3, 8, false}, std::tuple{width, height, 3, 8}, roi);
    return {found.data, {found.height, found.width, 3}, found.owner};
  }

  nb::ndarray<nb::numpy> decode(const BytesArg& data, const FormatArg& wanted, const RawArg& raw,
                                const RoiArg& roi) {
    const PixelFormat format = to_format(wanted);
    const Pixels found = decode_pixels(data, wanted, raw, roi);
    const size_t shape[] = {found.height, found.width, static_cast<size_t>(format.channels)};
    const nb::dlpack::dtype dtype =
        format.bits == 16 ? nb::dtype<uint16_t>() : nb::dtype<uint8_t>();
    return {found.data, format.ids ? size_t{2} : 3, shape, found.owner, nullptr, dtype};
  }

  nb::dict counts() { return by_path(decoder_.counts()); }

 private:
  struct Pixels {
    uint8_t* data;
    size_t height;
    size_t width;
    nb::capsule owner;
  };

  Pixels decode_pixels(const BytesArg& data, const FormatArg& format, const RawArg& raw,
                       const RoiArg& wanted) {
    Rect roi;
    uint8_t* pixels = nullptr;
    {
      const GilRelease release;
      const std::lock_guard lock(mutex_);
      const ImageInfo info = open_picture(decoder_, data, format, raw);
      roi = {0, 0, static_cast<int>(info.width), static_cast<int>(info.height)};
      if (wanted) std::tie(roi.x, roi.y, roi.width, roi.height) = *wanted;
      // A wrong ROI is refused by the decoder before it gives the first row.
      ArraySink sink(std::clamp(roi.width, 0, static_cast<int>(info.width)),
                     std::clamp(roi.height, 0, static_cast<int>(info.height)),
                     to_format(format).pixel_bytes());
      decoder_.decode(roi, sink);
      pixels = sink.release();
    }
    nb::capsule owner(pixels, [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
    return {pixels, static_cast<size_t>(roi.height), static_cast<size_t>(roi.width),
            std::move(owner)};
  }

  std::mutex mutex_;
  Decoder decoder_;
};

nb::tuple probe_tuple(const BytesArg& data) {
  ImageInfo info;
  {
    const GilRelease release;
    info = probe(as_bytes(data));
  }
  return nb::make_tuple(std::string(codec_name(info.codec)), info.width, info.height, info.channels,
                        info.flags);
}

nb::dict codec_table() {
  nb::dict table;
  for (size_t number = 0; number < kCodecs; ++number) {
    const CodecRow& row = codec_row(static_cast<Codec>(number));
    table[row.name] = nb::make_tuple(number, row.title, row.pillow, row.extension);
  }
  return table;
}

}  // namespace

void register_decode(nb::module_& m) {
  const DecodeLimits defaults;
  m.attr("CODECS") = codec_table();  // number, title, Pillow's name and extension by name
  m.def(
      "sniff", [](const BytesArg& data) { return std::string(codec_name(sniff(as_bytes(data)))); },
      nb::arg("data"), "The codec's name by the leading bytes of a uint8 array, or \"unknown\".");
  m.def("probe", probe_tuple, nb::arg("data"),
        "(codec, width, height, channels, flags) of an encoded picture (uint8 array) by its "
        "header; sizes in "
        "pixels, 0 where only Pillow knows. Raises DecodeError.");
  m.attr("FLAG_PROGRESSIVE") = static_cast<int>(ImageInfo::kProgressive);
  m.attr("FLAG_SIXTEEN_BIT") = static_cast<int>(ImageInfo::kSixteenBit);
  m.attr("FLAG_ANIMATED") = static_cast<int>(ImageInfo::kAnimated);
  m.attr("FLAG_NEEDS_FALLBACK") = static_cast<int>(ImageInfo::kNeedsFallback);
  m.attr("MAX_PIXELS") = defaults.max_pixels;
  m.attr("MAX_SIDE") = defaults.max_side;

  nb::class_<PyDecoder>(m, "Decoder",
                        "Decodes pictures one after the other and keeps its scratch memory.")
      .def(
          "__init__",
          [](PyDecoder* self, uint64_t max_pixels, uint32_t max_side, int max_scans,
             nb::object fallback) {
            new (self) PyDecoder({max_pixels, max_side, max_scans}, std::move(fallback));
          },
          nb::arg("max_pixels") = defaults.max_pixels, nb::arg("max_side") = defaults.max_side,
          nb::arg("max_scans") = defaults.max_scans, nb::arg("fallback") = nb::none())
      .def("decode_rgb", &PyDecoder::decode_rgb, nb::arg("data"), nb::arg("roi") = nb::none(),
           "(height, width, 3) uint8 of an encoded picture; roi is (x, y, width, height).")
      .def("decode_raw", &PyDecoder::decode_raw, nb::arg("data"), nb::arg("width"),
           nb::arg("height"), nb::arg("roi") = nb::none(),
           "The same for raw RGB pixels of a known size.")
      .def("decode", &PyDecoder::decode, nb::arg("data"),
           nb::arg("format") = FormatArg{3, 8, false}, nb::arg("raw") = nb::none(),
           nb::arg("roi") = nb::none(),
           "An encoded picture, or raw pixels of (width, height, channels, bits), in a format "
           "(channels, bits, ids): (height, width, channels), of ids (height, width), uint8 or "
           "uint16. Raises DecodeError where it cannot be had so.")
      .def("counts", &PyDecoder::counts,
           "Pictures decoded by each codec, and how many gave a warning.");

  m.def(
      "decode_rgb",
      [](const BytesArg& data, const RoiArg& roi, uint64_t max_pixels, nb::object fallback) {
        DecodeLimits limits;
        limits.max_pixels = max_pixels;
        return PyDecoder(limits, std::move(fallback)).decode_rgb(data, roi);
      },
      nb::arg("data"), nb::arg("roi") = nb::none(), nb::arg("max_pixels") = defaults.max_pixels,
      nb::arg("fallback") = nb::none(),
      "(height, width, 3) uint8 of an encoded picture (uint8 array). roi is (x, y, width, height) "
      "in pixels; "
      "fallback(record: bytes) -> array decodes what the core cannot. Raises DecodeError, "
      "LimitError, ValueError.");
}

}  // namespace fastload::bindings
