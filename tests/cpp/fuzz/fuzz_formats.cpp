// A view of a picture in any format: what is refused is refused in words, at two instruction sets
// the bytes are the same, no byte between or behind the rows is written, and the view equals the
// one that is cut from the whole picture in that format.
//
// Input: 32 control bytes (format, view, dtype), the encoded picture or raw pixels.
#include <array>
#include <optional>

#include "base/cpu.h"
#include "input.h"
#include "transform/cut.h"
#include "views.h"

namespace {

using namespace fastload;
using namespace fastload::fuzz;
using Pixels = std::vector<uint8_t>;

constexpr size_t kControl = 32;
constexpr uint8_t kUntouched = 0xA5;
// Flags of the first byte, whose rest chooses a format.
constexpr uint8_t kRaw = 0x80, kTurned = 0x40, kWhite = 0x20;

constexpr std::array<PixelFormat, 10> kFormats{{
    {3, 8, false},
    {1, 8, false},
    {2, 8, false},
    {4, 8, false},
    {1, 16, false},
    {2, 16, false},
    {3, 16, false},
    {4, 16, false},
    {1, 8, true},
    {1, 16, true},
}};

struct Case {
  Bytes file;
  Rect raw;            // its size, where the file is raw pixels
  PixelFormat stored;  // of raw pixels
  Shown shown;
  View view;
  CutSpec spec;
  size_t gap = 0;  // elements between rows
  ImageInfo info;
};

ImageInfo open(Decoder& decoder, const Case& c) {
  if (c.raw.width == 0) return decoder.open(c.file, c.spec.format, c.shown);
  return decoder.open_raw(c.file, static_cast<uint32_t>(c.raw.width),
                          static_cast<uint32_t>(c.raw.height), c.stored, c.spec.format);
}

void choose_raw(Case& c, Input& in) {
  c.stored = {in.in(1, 5), in.coin() ? 8 : 16, false};
  if (in.coin()) c.stored = c.spec.format;
  c.stored.ids = false;
  c.raw.width = in.in(1, 64);
  const size_t row = c.stored.pixel_bytes() * static_cast<size_t>(c.raw.width);
  c.raw.height = static_cast<int>(c.file.size() / row);
  c.file = c.file.first(row * static_cast<size_t>(c.raw.height));
}

CutSpec take_spec(Input& in, const PixelFormat& format) {
  CutSpec spec;
  spec.format = format;
  spec.nearest = format.ids || in.coin();
  spec.store.dtype = static_cast<DType>(in.in(0, 5));
  spec.store.channels_last = in.coin();
  spec.store.scale = in.coin();
  spec.fill = in.coin() ? in.in(0, 300) : 0;
  return spec;
}

// The stored view, of rows that `feed` gives to the cutter.
template <class Feed>
Pixels make(const Case& c, const CutPlan& plan, Feed feed) {
  const auto channels = static_cast<size_t>(c.spec.format.channels);
  const bool last = c.spec.store.channels_last;
  const size_t size = dtype_size(c.spec.store.dtype);
  const size_t dense = size * static_cast<size_t>(c.view.made().width) * (last ? channels : 1);
  const size_t row = dense + c.gap * size;
  const auto height = static_cast<size_t>(c.view.made().height);
  Pixels out(row * (height * (last ? 1 : channels) - 1) + dense, kUntouched);
  Resampler resampler;
  PixelStage stage;
  Cutter cutter(resampler, stage);
  cutter.begin(c.view, plan, {out.data(), row, row * height});
  feed(cutter);
  cutter.end();
  for (size_t at = dense; at < out.size(); at += row) {
    for (size_t i = 0; i < c.gap * size; ++i) FUZZ_CHECK(out[at + i] == kUntouched);
  }
  return out;
}

void check_kind(const Error& error) {
  FUZZ_CHECK(error.kind() == ErrorKind::kDecode || error.kind() == ErrorKind::kLimit);
}

// Nothing where the decoder refuses the file.
std::optional<Pixels> cut(const Case& c, const CutPlan& plan) {
  Decoder decoder(limits());
  open(decoder, c);
  try {
    return make(c, plan, [&](Cutter& cutter) { decoder.decode(cutter.source(), cutter); });
  } catch (const Error& error) {
    check_kind(error);
    return std::nullopt;
  }
}

// The same from the whole picture; nothing where that is damaged.
std::optional<Pixels> cut_whole(const Case& c, const CutPlan& plan) {
  const Rect all{0, 0, static_cast<int>(c.info.width), static_cast<int>(c.info.height)};
  const size_t pixel = c.spec.format.pixel_bytes();
  Collector sink(all, pixel);
  Decoder decoder(limits());
  try {
    open(decoder, c);
    decoder.decode(all, sink);
  } catch (const Error& error) {
    check_kind(error);
    return std::nullopt;
  }
  FUZZ_CHECK(sink.whole());
  if (decoder.counts()[fastload::kWarnings] != 0) return std::nullopt;
  Pixels pixels = sink.pixels();
  pixels.resize(pixels.size() + RowSink::kSlack);
  const size_t stride = pixel * static_cast<size_t>(all.width);
  return make(c, plan, [&](Cutter& cutter) {
    const Rect source = cutter.source();
    cutter.rows(pixels.data() + stride * static_cast<size_t>(source.y) +
                    pixel * static_cast<size_t>(source.x),
                stride, 0, source.height);
  });
}

// False: the picture cannot be had so, or not be stored so.
bool prepare(Case& c, Input& in) {
  const uint8_t flags = in.u8();
  c.spec = take_spec(in, kFormats[(flags & 0x1F) % kFormats.size()]);
  c.shown = {(flags & kTurned) != 0, (flags & kWhite) != 0};
  if ((flags & kRaw) != 0) choose_raw(c, in);
  c.gap = static_cast<size_t>(in.in(0, 4));
  Decoder decoder(limits());
  try {
    c.info = open(decoder, c);
    if (c.info.width == 0) return false;
    c.view = in.coin() ? drawn_view(in, c.info) : free_view(in, c.info);
    c.view.filter = c.view.crop.width % 2 == 0 ? Filter::kBicubic : Filter::kBilinear;
  } catch (const Error& error) {
    check_kind(error);
    return false;
  }
  return c.view.window.width <= 2 * kMaxSide && c.view.window.height <= 2 * kMaxSide;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size <= kControl) return 0;
  Input control(Bytes(data, kControl));
  Case c;
  c.file = Bytes(data, size).subspan(kControl);
  const auto levels = take_levels(control);
  if (!prepare(c, control)) return 0;
  std::optional<CutPlan> plan;
  try {
    plan.emplace(c.spec);
  } catch (const Error& error) {
    FUZZ_CHECK(error.kind() == ErrorKind::kValue);
    return 0;
  }
  set_simd_level(simd_level_name(levels.first));
  const std::optional<Pixels> found = cut(c, *plan);
  set_simd_level(simd_level_name(levels.second));
  FUZZ_CHECK(cut(c, *plan) == found);
  set_simd_level("scalar");
  const std::optional<Pixels> wanted = cut_whole(c, *plan);
  if (wanted) FUZZ_CHECK(found == wanted);
  return 0;
}
