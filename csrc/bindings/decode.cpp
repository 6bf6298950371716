// Decoders, and JPEGs' entry points and coefficients.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "convert.h"
#include "decode/codecs/codec.h"
#include "decode/jpeg/decoder.h"
#include "decode/jpeg/turbo.h"
#include "decode/orientation.h"
#include "fallback.h"
#include "gil.h"
#include "pack/baseline.h"
#include "paths.h"
#include "register.h"
#include "transcode/coefficients.h"

namespace nb = nanobind;

namespace fastload::bindings {

// ---- Decoding of single pictures, for tests, the pack stage and Python code that wants one image

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

  RgbArray decode_rgb(const BytesArg& data, const RoiArg& roi, const ShownArg& shown = {}) {
    const Pixels found = decode_pixels(data, {3, 8, false}, std::nullopt, roi, shown);
    return {found.data, {found.height, found.width, 3}, found.owner};
  }

  RgbArray decode_raw(const BytesArg& data, uint32_t width, uint32_t height, const RoiArg& roi) {
    const Pixels found = decode_pixels(data, {3, 8, false}, std::tuple{width, height, 3, 8}, roi, {});
    return {found.data, {found.height, found.width, 3}, found.owner};
  }

  nb::ndarray<nb::numpy> decode(const BytesArg& data, const FormatArg& wanted, const RawArg& raw,
                                const RoiArg& roi, const ShownArg& shown) {
    const PixelFormat format = to_format(wanted);
    const Pixels found = decode_pixels(data, wanted, raw, roi, shown);
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
                       const RoiArg& wanted, const ShownArg& shown) {
    Rect roi;
    uint8_t* pixels = nullptr;
    {
      const GilRelease release;
      const std::lock_guard lock(mutex_);
      const ImageInfo info = open_picture(decoder_, data, format, raw, shown);
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

nb::tuple probe_tuple(const BytesArg& data, const ShownArg& shown) {
  ImageInfo info;
  {
    const GilRelease release;
    info = shown_info(as_bytes(data), probe(as_bytes(data)), to_shown(shown));
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
  m.def(
      "orientation", [](const BytesArg& data) { return orientation_of(as_bytes(data)).number(); },
      nb::arg("data"), nb::call_guard<GilRelease>(),
      "EXIF's number, 1 to 8, of which way a picture's file (uint8 array) is to be turned; 1 where it "
      "says nothing.");
  m.def("probe", probe_tuple, nb::arg("data"), nb::arg("shown") = ShownArg{},
        "(codec, width, height, channels, flags) of an encoded picture (uint8 array) by its "
        "header; sizes in "
        "pixels, 0 where only Pillow knows, and as they are shown. Raises DecodeError.");
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
           nb::arg("shown") = ShownArg{},
           "(height, width, 3) uint8 of an encoded picture; roi is (x, y, width, height).")
      .def("decode_raw", &PyDecoder::decode_raw, nb::arg("data"), nb::arg("width"),
           nb::arg("height"), nb::arg("roi") = nb::none(),
           "The same for raw RGB pixels of a known size.")
      .def("decode", &PyDecoder::decode, nb::arg("data"),
           nb::arg("format") = FormatArg{3, 8, false}, nb::arg("raw") = nb::none(),
           nb::arg("roi") = nb::none(), nb::arg("shown") = ShownArg{},
           "An encoded picture, or raw pixels of (width, height, channels, bits), in a format "
           "(channels, bits, ids): (height, width, channels), of ids (height, width), uint8 or "
           "uint16; shown as Reader.show() takes it. Raises DecodeError where it cannot be had so.")
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

// ---- fastload's own JPEG decoder, for tests, benchmarks and the packer

namespace {

using RoiArg = std::optional<std::tuple<int, int, int, int>>;
using EntriesArg = std::optional<BytesArg>;

class ImageSink : public RowSink {
 public:
  void restart() override {}
  ImageSink(uint8_t* pixels, int width, int height)
      : pixels_(pixels), width_(width), height_(height) {}
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override {
    if (y != next_ || count < 1 || y + count > height_)
      throw Error(ErrorKind::kState, "Rows out of order.");
    const size_t row = static_cast<size_t>(width_) * 3;
    for (int i = 0; i < count; ++i) {
      std::memcpy(pixels_ + static_cast<size_t>(y + i) * row,
                  pixels + static_cast<size_t>(i) * stride, row);
    }
    next_ = y + count;
  }
  [[nodiscard]] bool complete() const { return next_ == height_; }

 private:
  uint8_t* pixels_;
  int width_, height_, next_ = 0;
};

class NullSink : public RowSink {
 public:
  void restart() override {}
  void rows(const uint8_t*, size_t, int, int) override {}
};

void open_or_throw(JpegDecoder& decoder, Bytes bytes) {
  if (!decoder.open(bytes)) throw Error(ErrorKind::kDecode, "Not a JPEG that this decoder takes.");
}

Rect rect_of(const std::tuple<int, int, int, int>& roi) {
  const auto [x, y, width, height] = roi;
  return {x, y, width, height};
}

Rect region_of(const JpegDecoder& decoder, const RoiArg& roi) {
  const ImageInfo info = decoder.info();
  if (!roi) return {0, 0, static_cast<int>(info.width), static_cast<int>(info.height)};
  return rect_of(*roi);
}

EntryPoints entries_of(const EntriesArg& entries, int spacing) {
  return entries ? EntryPoints{as_bytes(*entries), spacing} : EntryPoints{};
}

nb::object decode(const BytesArg& data, const RoiArg& roi, const EntriesArg& entries, int spacing) {
  JpegDecoder decoder;
  open_or_throw(decoder, as_bytes(data));
  const Rect region = region_of(decoder, roi);
  if (region.width < 1 || region.height < 1) throw nb::value_error("the region must not be empty");
  const auto width = static_cast<size_t>(region.width), height = static_cast<size_t>(region.height);
  auto* pixels = new uint8_t[width * height * 3];
  nb::capsule owner(pixels, [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
  {
    GilRelease release;
    ImageSink sink(pixels, region.width, region.height);
    decoder.decode(region, sink, entries_of(entries, spacing));
    if (!sink.complete()) throw Error(ErrorKind::kState, "The decoder left rows out.");
  }
  return nb::cast(nb::ndarray<nb::numpy, uint8_t, nb::ndim<3>>(pixels, {height, width, 3}, owner));
}

nb::object to_array(const std::vector<uint8_t>& bytes) {
  auto* copy = new uint8_t[bytes.size()];
  nb::capsule owner(copy, [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
  if (!bytes.empty()) std::memcpy(copy, bytes.data(), bytes.size());
  return nb::cast(nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(copy, {bytes.size()}, owner));
}

nb::bytes to_bytes(const std::vector<uint8_t>& bytes) {
  return nb::bytes(bytes.data(), bytes.size());
}

CoefficientForm form_of(const std::string& form) {
  if (form == "small") return CoefficientForm::kSmall;
  if (form == "fast") return CoefficientForm::kFast;
  throw Error(ErrorKind::kValue, "form must be \"small\" or \"fast\". Found: \"" + form + "\".");
}

CoefficientProof proof_of(const std::string& proof) {
  if (proof == "file") return CoefficientProof::kFile;
  if (proof == "pixels") return CoefficientProof::kPixels;
  throw Error(ErrorKind::kValue, "proof must be \"file\" or \"pixels\". Found: \"" + proof + "\".");
}

// Decodes into nowhere and keeps the time of each stage.
class JpegClock {
 public:
  JpegClock() { decoder_.set_times(&times_); }
  void decode(const BytesArg& data, const RoiArg& roi, const EntriesArg& entries, int spacing) {
    GilRelease release;
    open_or_throw(decoder_, as_bytes(data));
    decoder_.decode(region_of(decoder_, roi), sink_, entries_of(entries, spacing));
  }
  // The same by libjpeg-turbo, in the stage "libjpeg_turbo".
  void decode_turbo(const BytesArg& data, const RoiArg& roi) {
    GilRelease release;
    const ImageInfo info = probe(as_bytes(data));
    const Rect whole{0, 0, static_cast<int>(info.width), static_cast<int>(info.height)};
    const auto start = std::chrono::steady_clock::now();
    turbo_.decode(as_bytes(data), info, roi ? rect_of(*roi) : whole, DecodeLimits{}.max_scans,
                  sink_);
    turbo_time_ += (std::chrono::steady_clock::now() - start) / std::chrono::nanoseconds(1);
  }
  [[nodiscard]] nb::dict take() {
    nb::dict result;
    result["parse"] = times_.parse;
    result["entropy"] = times_.entropy;
    result["idct"] = times_.idct;
    result["color"] = times_.color;
    result["libjpeg_turbo"] = turbo_time_;
    times_ = JpegStageTimes{};
    turbo_time_ = 0;
    return result;
  }

 private:
  JpegStageTimes times_;
  int64_t turbo_time_ = 0;
  JpegDecoder decoder_;
  JpegTurbo turbo_;
  NullSink sink_;
};

}  // namespace

void register_jpeg(nb::module_& m) {
  m.def(
      "jpeg_supported", [](const BytesArg& data) { return JpegDecoder().open(as_bytes(data)); },
      nb::arg("data"), "Whether fastload's own decoder takes this JPEG.");
  m.def("jpeg_decode", decode, nb::arg("data"), nb::arg("roi") = nb::none(),
        nb::arg("entries") = nb::none(), nb::arg("spacing") = 0,
        "RGB uint8 [height, width, 3] of roi = (x, y, width, height), by fastload's own decoder "
        "only.");
  m.def(
      "jpeg_build_entries",
      [](const BytesArg& data, int spacing) {
        std::vector<uint8_t> packed;
        {
          GilRelease release;
          packed = build_entries(as_bytes(data), spacing);
        }
        return to_array(packed);
      },
      nb::arg("data"), nb::arg("spacing"),
      "Packed entry points, uint8 [n]; empty if the file has none. spacing: pixels, 0 for rows of "
      "MCUs.");
  m.def(
      "jpeg_to_baseline",
      [](const BytesArg& data, uint64_t max_pixels, int max_scans) {
        std::vector<uint8_t> written;
        {
          GilRelease release;
          DecodeLimits limits;
          limits.max_pixels = max_pixels;
          limits.max_scans = max_scans;
          written = to_baseline(as_bytes(data), limits);
        }
        return to_array(written);
      },
      nb::arg("data"), nb::arg("max_pixels") = DecodeLimits{}.max_pixels,
      nb::arg("max_scans") = DecodeLimits{}.max_scans,
      "The progressive JPEG as a baseline one of the same coefficients and segments, uint8 [n]; "
      "raises DecodeError where that cannot be.");
  m.def(
      "to_coefficients",
      [](const BytesArg& data, const std::string& form, const std::string& proof) {
        const CoefficientForm chosen = form_of(form);
        const CoefficientProof wanted = proof_of(proof);
        std::vector<uint8_t> record;
        {
          GilRelease release;
          record = to_coefficients(as_bytes(data), chosen, {}, wanted);
        }
        return to_bytes(record);
      },
      nb::arg("jpeg"), nb::arg("form"), nb::arg("proof") = "file",
      "The coefficient record of a JPEG, as bytes. form: \"small\" or \"fast\". proof: \"file\": "
      "the "
      "file comes back from it byte for byte; \"pixels\": its coefficients do, for those who keep "
      "the file. Raises DecodeError with the reason where the file cannot be kept so.");
  m.def(
      "coefficients_to_jpeg",
      [](const BytesArg& record) {
        std::vector<uint8_t> jpeg;
        {
          GilRelease release;
          jpeg = to_jpeg(as_bytes(record));
        }
        return to_bytes(jpeg);
      },
      nb::arg("record"), "The JPEG file of a coefficient record, byte for byte, as bytes.");
  nb::class_<JpegClock>(m, "JpegClock", "One decoder with stage clocks, for benchmarks.")
      .def(nb::init<>())
      .def("decode", &JpegClock::decode, nb::arg("data"), nb::arg("roi") = nb::none(),
           nb::arg("entries") = nb::none(), nb::arg("spacing") = 0, nb::lock_self(),
           "Decodes and drops the pixels.")
      .def("decode_turbo", &JpegClock::decode_turbo, nb::arg("data"), nb::arg("roi") = nb::none(), nb::lock_self(),
           "The same by libjpeg-turbo.")
      .def("take", &JpegClock::take, nb::lock_self(), "Nanoseconds in each stage since the last call.");
}

}  // namespace fastload::bindings
