// transform/cut.h and decode/formats.h: pictures of any format on memory of exactly the promised
// size, so that AddressSanitizer sees a byte too much. Tests against Pillow are in
// tests/transform/test_cut.py and tests/decode/test_formats.py.
#include <algorithm>
#include <vector>

#include "base/cpu.h"
#include "check.h"
#include "decode/decode.h"
#include "levels.h"
#include "random.h"
#include "transform/cut.h"

namespace {

using fastload::CutPlan;
using fastload::CutSpec;
using fastload::Cutter;
using fastload::Decoder;
using fastload::DType;
using fastload::Filter;
using fastload::PixelFormat;
using fastload::PixelStage;
using fastload::Rect;
using fastload::Resampler;
using fastload::StorePlace;
using fastload::View;
using fastload::test::Random;
using Pixels = std::vector<uint8_t>;

struct Tools {
  Decoder decoder;
  Resampler resampler;
  PixelStage stage;
  Cutter cutter{resampler, stage};
};

struct Raw {
  int width = 0;
  int height = 0;
  PixelFormat format;
  Pixels pixels;
};

constexpr int kMaxSide = 90;

Raw random_raw(Random& random) {
  Raw raw;
  raw.width = random.in(1, kMaxSide);
  raw.height = random.in(1, kMaxSide);
  raw.format = {random.in(1, 6), random.coin() ? 8 : 16, false};
  raw.pixels =
      random.samples(static_cast<size_t>(raw.width) * raw.height * raw.format.pixel_bytes());
  raw.pixels.shrink_to_fit();
  return raw;
}

View random_view(Random& random, int width, int height) {
  View view;
  view.filter = static_cast<Filter>(random.in(0, 2));
  view.crop.x = random.in(0, width - 1);
  view.crop.y = random.in(0, height - 1);
  view.crop.width = random.in(1, width - view.crop.x);
  view.crop.height = random.in(1, height - view.crop.y);
  view.resized_width = random.in(0, 3) == 0 ? view.crop.width : random.in(1, kMaxSide);
  view.resized_height = random.in(0, 3) == 0 ? view.crop.height : random.in(1, kMaxSide);
  view.window = {0, 0, view.resized_width, view.resized_height};
  if (random.coin()) {
    view.window.x = random.in(-9, view.resized_width - 1);
    view.window.y = random.in(-9, view.resized_height - 1);
    view.window.width = random.in(std::max(1, 1 - view.window.x), view.resized_width + 9);
    view.window.height = random.in(std::max(1, 1 - view.window.y), view.resized_height + 9);
  }
  view.flip = random.coin();
  view.quarter = static_cast<uint8_t>(random.in(0, 3));
  view.filter = static_cast<Filter>(random.in(0, 2));
  return view;
}

CutSpec random_spec(Random& random, const PixelFormat& format) {
  CutSpec spec;
  spec.format = format;
  spec.nearest = random.coin();
  spec.store.dtype = static_cast<DType>(random.in(format.bits == 16 ? 2 : 0, 5));
  spec.store.channels_last = random.coin();
  spec.store.scale = spec.store.dtype != DType::kUint8 && spec.store.dtype <= DType::kFloat32;
  if (spec.nearest) spec.fill = random.in(0, 255);
  return spec;
}

// Rows lie `gap` elements further apart than they must. The last row has no gap: nothing may be
// written there.
Pixels cut(Tools& tools, const Raw& raw, const View& view, const CutSpec& spec, int gap) {
  const CutPlan plan(spec);
  const auto channels = static_cast<size_t>(spec.format.channels);
  const size_t size = dtype_size(spec.store.dtype);
  const size_t dense =
      size * static_cast<size_t>(view.made().width) * (spec.store.channels_last ? channels : 1);
  const size_t row = dense + size * static_cast<size_t>(gap);
  const auto rows =
      static_cast<size_t>(view.made().height) * (spec.store.channels_last ? 1 : channels);
  Pixels out(row * (rows - 1) + dense, 0xA5);
  tools.decoder.open_raw(raw.pixels, static_cast<uint32_t>(raw.width),
                         static_cast<uint32_t>(raw.height), raw.format, spec.format);
  const StorePlace place{out.data(), row, row * static_cast<size_t>(view.made().height)};
  tools.cutter.begin(view, plan, place, {}, {raw.width, raw.height});
  tools.decoder.decode(tools.cutter.source(), tools.cutter);
  tools.cutter.end();
  return out;
}

// One channel of interleaved elements.
Pixels channel_of(const Pixels& pixels, size_t size, int channels, int channel) {
  Pixels found;
  const size_t step = size * static_cast<size_t>(channels);
  for (size_t at = size * static_cast<size_t>(channel); at < pixels.size(); at += step) {
    found.insert(found.end(), pixels.begin() + static_cast<std::ptrdiff_t>(at),
                 pixels.begin() + static_cast<std::ptrdiff_t>(at + size));
  }
  return found;
}

TEST(every_level_cuts_the_same_bytes) {
  Random random(1);
  Tools tools;  // kept, as a thread keeps them
  const auto best = fastload::simd_level();
  const auto levels = fastload::test::machine_levels();
  for (int i = 0; i < 1200; ++i) {
    const Raw raw = random_raw(random);
    const View view = random_view(random, raw.width, raw.height);
    const CutSpec spec = random_spec(random, raw.format);
    const int gap = random.in(0, 5);
    Pixels wanted;
    for (const auto level : levels) {
      fastload::set_simd_level(fastload::simd_level_name(level));
      const Pixels found = cut(tools, raw, view, spec, gap);
      if (wanted.empty()) wanted = found;
      CHECK(found == wanted);
    }
  }
  fastload::set_simd_level(fastload::simd_level_name(best));
}

TEST(each_channel_is_cut_as_if_alone) {
  Random random(2);
  Tools tools;
  for (int i = 0; i < 400; ++i) {
    const Raw raw = random_raw(random);
    const View view = random_view(random, raw.width, raw.height);
    CutSpec spec = random_spec(random, raw.format);
    spec.store.channels_last = true;
    const Pixels all = cut(tools, raw, view, spec, 0);
    spec.format.channels = 1;
    for (int c = 0; c < raw.format.channels; ++c) {
      Raw alone = raw;
      alone.format.channels = 1;
      alone.pixels = channel_of(raw.pixels, raw.format.channel_bytes(), raw.format.channels, c);
      CHECK(channel_of(all, dtype_size(spec.store.dtype), raw.format.channels, c) ==
            cut(tools, alone, view, spec, 0));
    }
  }
}

TEST(ids_are_widened_and_filled) {
  Random random(3);
  Tools tools;
  const Raw mask{3, 2, {1, 8, false}, {1, 2, 3, 4, 5, 6}};
  const View view{{1, 0, 2, 2}, 2, 2, {-1, 0, 3, 3}, true};
  CutSpec spec;
  spec.format = {1, 16, true};
  spec.nearest = true;
  spec.fill = 999;
  spec.store.dtype = DType::kUint16;
  const Pixels found = cut(tools, mask, view, spec, 0);
  std::vector<uint16_t> ids(9);
  std::copy(found.begin(), found.end(), reinterpret_cast<uint8_t*>(ids.data()));
  CHECK((ids == std::vector<uint16_t>{3, 2, 999, 6, 5, 999, 999, 999, 999}));
}

// What operations make of a whole picture of 8-bit RGB.
Pixels operated(const fastload::PixelSpec& spec, const Raw& raw) {
  fastload::Canvas canvas;
  fastload::DrawnPixels drawn;
  canvas.begin(raw.width, raw.height);
  std::copy(raw.pixels.begin(), raw.pixels.end(), canvas.picture().pixels);
  spec.draw({}, drawn);
  drawn.apply(canvas);
  const auto& picture = canvas.picture();
  return {picture.pixels, picture.pixels + picture.bytes()};
}

TEST(operations_on_the_whole_picture_come_before_the_crop) {
  Random random(4);
  Tools tools;
  for (int i = 0; i < 300; ++i) {
    Raw raw = random_raw(random);
    raw.format = {3, 8, false};
    raw.pixels = random.samples(size_t{3} * static_cast<size_t>(raw.width) * raw.height);
    const View view = random_view(random, raw.width, raw.height);
    CutSpec spec;
    spec.format = raw.format;
    spec.nearest = random.coin();
    const fastload::PixelSpec source(
        {{"contrast", 1.0, {1.4}, {}},
         {"rotate", 1.0, {33.0, 0.0, 0.0, 0.0, 1.0, 9.0, 8.0, 7.0}, {}},
         {"invert", 0.0, {}, {}}});
    Raw before = raw;
    before.pixels = operated(source, raw);
    const Pixels wanted = cut(tools, before, view, spec, 0);
    spec.source = source;
    CHECK(cut(tools, raw, view, spec, 0) == wanted);
    // Nothing happens to this sample, so the rest of the picture is not needed.
    spec.source = fastload::PixelSpec({{"invert", 0.0, {}, {}}});
    const CutPlan plan(spec);
    fastload::DrawnPixels drawn;
    CHECK(!plan.may_take_whole({}, drawn));
  }
  tools.cutter.trim(0);
}

TEST(ids_follow_the_picture_that_they_belong_to) {
  Tools tools;
  // Upside down, and a picture twice as wide and high moved by two pixels.
  const Raw mask{3, 2, {1, 8, false}, {1, 2, 3, 4, 5, 6}};
  CutSpec spec;
  spec.format = {1, 8, true};
  spec.nearest = true;
  spec.fill = 99;
  spec.source =
      fastload::PixelSpec({{"vertical_flip", 1.0, {}, {}},
                           {"grayscale", 1.0, {}, {}},
                           {"translate_x", 1.0, {2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0}, {}}});
  const CutPlan plan(spec);
  const View view{{1, 0, 2, 2}, 2, 2, {0, 0, 2, 2}, false};
  const auto found = [&](std::pair<int, int> drawn) {
    Pixels out(4);
    tools.decoder.open_raw(mask.pixels, 3, 2, mask.format, spec.format);
    tools.cutter.begin(view, plan, {out.data()}, {}, {3, 2, drawn});
    tools.decoder.decode(tools.cutter.source(), tools.cutter);
    tools.cutter.end();
    return out;
  };
  CHECK((found({3, 2}) == Pixels{99, 4, 99, 1}));
  CHECK((found({6, 4}) == Pixels{4, 5, 1, 2}));
  spec.source = fastload::PixelSpec({{"grayscale", 1.0, {}, {}}});
  fastload::DrawnPixels drawn;
  CHECK(!CutPlan(spec).may_take_whole({}, drawn));
}

TEST(nearest_refuses_rows_out_of_order) {
  const View view{{0, 0, 8, 8}, 4, 4, {0, 0, 4, 4}, false};
  Pixels pixels(64 + fastload::RowSink::kSlack), out(16);
  Tools tools;
  CutSpec spec;
  spec.format = {1, 8, true};
  spec.nearest = true;
  const CutPlan plan(spec);
  CHECK_THROWS(kState, "Rows must come in order", [] {
    Resampler resampler;
    PixelStage stage;
    Cutter(resampler, stage).rows(nullptr, 8, 0, 1);
  }());
  tools.cutter.begin(view, plan, {out.data()});
  // Of 8 rows, 1, 3, 5 and 7 are shown.
  CHECK((tools.cutter.source() == Rect{1, 1, 7, 7}));
  tools.cutter.rows(pixels.data(), 8, 0, 3);
  CHECK_THROWS(kState, "row 3 of 7 next. Found: 1 rows from 4",
               tools.cutter.rows(pixels.data(), 8, 4, 1));
  CHECK_THROWS(kState, "needs 7 rows. Found: 3", tools.cutter.end());
  tools.cutter.restart();
  tools.cutter.rows(pixels.data(), 8, 0, 7);
  tools.cutter.end();
}

TEST(views_that_cannot_be_are_refused_for_masks_too) {
  Tools tools;
  CutSpec spec;
  spec.format = {1, 8, true};
  spec.nearest = true;
  const CutPlan plan(spec);
  Pixels out(16);
  View view{{0, 0, 8, 8}, 4, 4, {4, 0, 4, 4}, false};
  CHECK_THROWS(kValue, "must overlap", tools.cutter.begin(view, plan, {out.data()}));
  view.window = {0, 0, 4, 0};
  CHECK_THROWS(kValue, "Height of the window", tools.cutter.begin(view, plan, {out.data()}));
}

}  // namespace
