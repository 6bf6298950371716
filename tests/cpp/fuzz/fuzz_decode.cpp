// The whole way of a sample: open, source rectangle, decode, resize, store, at two instruction
// sets, on pictures of any codec. Where libjpeg decodes a JPEG to its end without a warning, the
// sample is made, and equals the one made from libjpeg's pixels; for the other codecs it equals the
// one made from their own decode of the whole picture.
//
// Input: 32 control bytes (view, dtype, entries), the encoded picture.
#include <optional>

#include "base/cpu.h"
#include "decode/jpeg/entry_points.h"
#include "decode/jpeg/planes.h"
#include "input.h"
#include "jpeg_input.h"
#include "oracle.h"
#include "transform/resample.h"
#include "transform/store.h"
#include "views.h"

namespace {

using namespace fastload;
using namespace fastload::fuzz;
using Pixels = std::vector<uint8_t>;

constexpr size_t kControl = 32;

struct Case {
  Bytes file;
  int raw_width = 0;  // > 0: the file is raw pixels
  int raw_height = 0;
  View view;
  Filter filter = Filter::kBilinear;
  StoreSpec store;
  EntryPoints entries;
  Rect source;
  ImageInfo info;
};

StoreSpec take_store(Input& in) {
  StoreSpec spec;
  spec.dtype = static_cast<DType>(in.in(0, 3));
  spec.channels_last = in.coin();
  if (spec.dtype == DType::kUint8) return spec;
  spec.scale = in.coin();
  spec.normalize = in.coin();
  spec.mean = {0.485, 0.456, 0.406};
  spec.std = {0.229, 0.224, 0.225};
  return spec;
}

// The sample's bytes from rows of the source rectangle, which `feed` gives to the sink.
template <class Feed>
Pixels make_sample(const Case& c, Feed feed) {
  const size_t size = dtype_size(c.store.dtype) * 3 * static_cast<size_t>(c.view.window.width) *
                      static_cast<size_t>(c.view.window.height);
  Pixels out(size, 0xA5);
  Store store(c.store);
  store.begin(out.data(), c.view.window.width, c.view.window.height);
  Resampler resampler;
  resampler.begin(c.view, c.filter, store);
  feed(resampler);
  resampler.end();
  return out;
}

ImageInfo open(Decoder& decoder, const Case& c) {
  if (c.raw_width == 0) return decoder.open(c.file);
  return decoder.open_raw(c.file, static_cast<uint32_t>(c.raw_width),
                          static_cast<uint32_t>(c.raw_height));
}

// Nothing where the decoder refuses the file.
std::optional<Pixels> decode_sample(const Case& c, uint64_t& warnings) {
  Decoder decoder(limits());
  open(decoder, c);
  try {
    const Pixels sample =
        make_sample(c, [&](RowSink& sink) { decoder.decode(c.source, sink, c.entries); });
    warnings = decoder.counts()[fastload::kWarnings];
    return sample;
  } catch (const Error& error) {
    FUZZ_CHECK(error.kind() == ErrorKind::kDecode || error.kind() == ErrorKind::kLimit);
    return std::nullopt;
  }
}

// By the bytes alone that the source rectangle needs: of a picture that has entries these do.
void check_parts(const Case& c, const std::optional<Pixels>& sample) {
  if (c.entries.packed.empty()) return;
  JpegHeader header;
  FUZZ_CHECK(parse_jpeg(c.file, limits(), header));
  const McuWindow window = needed_mcus(header, c.source);
  const auto scan =
      bytes_of_rows(header, c.entries, c.file.size(), {window.row_begin, window.row_end});
  FUZZ_CHECK(scan);
  LoadedBytes loaded{header.scan_begin, scan->begin, scan->end};
  if (loaded.begin <= loaded.head) loaded.head = loaded.begin = loaded.end;
  Pixels bytes(c.file.begin(), c.file.begin() + static_cast<ptrdiff_t>(loaded.head));
  bytes.insert(bytes.end(), c.file.begin() + static_cast<ptrdiff_t>(loaded.begin),
               c.file.begin() + static_cast<ptrdiff_t>(loaded.end));
  Decoder decoder(limits());
  try {
    decoder.open_part(bytes, loaded);
    const Pixels parts =
        make_sample(c, [&](RowSink& sink) { decoder.decode(c.source, sink, c.entries); });
    FUZZ_CHECK(sample == parts);
  } catch (const NeedsWhole&) {
    // A file without its end marker, or whose header libjpeg-turbo must judge.
  }
}

// Other codecs: their whole picture, by the decoder itself.
OraclePicture whole_picture(const Case& c) {
  OraclePicture picture;
  picture.width = static_cast<int>(c.info.width);
  picture.height = static_cast<int>(c.info.height);
  const Rect all{0, 0, picture.width, picture.height};
  Collector sink(all);
  Decoder decoder(limits());
  try {
    open(decoder, c);
    decoder.decode(all, sink);
    FUZZ_CHECK(sink.whole());
    picture.rgb = sink.pixels();
    picture.clean = decoder.counts()[fastload::kWarnings] == 0;
  } catch (const Error&) {
  }
  return picture;
}

void check_sample(const Case& c, const std::optional<Pixels>& sample) {
  const OraclePicture oracle =
      c.info.codec == Codec::kJpeg ? oracle_decode(c.file) : whole_picture(c);
  if (!oracle.clean) return;
  FUZZ_CHECK(sample);
  FUZZ_CHECK(oracle.width == static_cast<int>(c.info.width));
  FUZZ_CHECK(oracle.height == static_cast<int>(c.info.height));
  Pixels slack = oracle.rgb;
  slack.resize(slack.size() + RowSink::kSlack);
  const size_t stride = static_cast<size_t>(oracle.width) * 3;
  const uint8_t* const first =
      slack.data() + stride * static_cast<size_t>(c.source.y) + static_cast<size_t>(c.source.x) * 3;
  set_simd_level("scalar");
  const Pixels wanted =
      make_sample(c, [&](RowSink& sink) { sink.rows(first, stride, 0, c.source.height); });
  FUZZ_CHECK(*sample == wanted);
}

// False: the header is refused, or the view is impossible.
bool prepare(Case& c, Input& in) {
  const uint8_t flags = in.u8();
  if ((flags & 7) == 7) {
    c.raw_width = in.in(1, 64);
    c.raw_height = static_cast<int>(c.file.size()) / (3 * c.raw_width);
    c.file = c.file.first(static_cast<size_t>(3 * c.raw_width * c.raw_height));
  }
  Decoder decoder(limits());
  try {
    c.info = open(decoder, c);
    if (c.info.width == 0) return false;
    c.view = (flags & 8) != 0 ? drawn_view(in, c.info) : free_view(in, c.info);
  } catch (const Error& error) {
    FUZZ_CHECK(error.kind() == ErrorKind::kDecode || error.kind() == ErrorKind::kLimit);
    return false;
  }
  c.filter = (flags & 16) != 0 ? Filter::kBicubic : Filter::kBilinear;
  c.store = take_store(in);
  c.source = source_rect(c.view, c.filter);
  return c.view.window.width <= 2 * kMaxSide && c.view.window.height <= 2 * kMaxSide;
}

}  // namespace

namespace fastload::fuzz {

size_t jpeg_begin(Bytes input) { return std::min(input.size(), kControl); }

}  // namespace fastload::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size <= kControl) return 0;
  Input control(Bytes(data, kControl));
  Case c;
  c.file = Bytes(data, size).subspan(kControl);
  if (!prepare(c, control)) return 0;
  Pixels entries;
  if (c.info.codec == Codec::kJpeg && (data[kControl - 1] & 1) != 0) {
    c.entries.spacing = data[kControl - 2];
    entries = build_entries(c.file, c.entries.spacing, limits());
    // Damaged ones are the other target's; here a file without them decodes sequentially.
    c.entries.packed = entries;
  }
  uint64_t warnings = 0;
  const auto levels = take_levels(control);
  set_simd_level(simd_level_name(levels.first));
  const std::optional<Pixels> sample = decode_sample(c, warnings);
  uint64_t again = 0;
  set_simd_level(simd_level_name(levels.second));
  FUZZ_CHECK(decode_sample(c, again) == sample);
  FUZZ_CHECK(again == warnings);
  check_parts(c, sample);
  check_sample(c, sample);
  return 0;
}
