// transform/: every instruction set against the scalar code on memory of exactly the promised size,
// so that AddressSanitizer sees a byte too much. Tests against Pillow and torch are in
// tests/transform.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "check.h"
#include "levels.h"
#include "random.h"
#include "transform/resample.h"
#include "transform/store.h"

namespace {

using fastload::DType;
using fastload::Filter;
using fastload::Rect;
using fastload::Resampler;
using fastload::RowSink;
using fastload::Store;
using fastload::StoreSpec;
using fastload::View;

using fastload::test::Random;

// Small sides are as likely as large ones.
int random_side(Random& random) { return random.coin() ? random.in(1, 9) : random.in(1, 300); }

View random_view(Random& random) {
  View view;
  view.crop = {random.in(0, 5), random.in(0, 5), random_side(random), random_side(random)};
  view.resized_width = random.in(0, 3) == 0 ? view.crop.width : random_side(random);
  view.resized_height = random.in(0, 3) == 0 ? view.crop.height : random_side(random);
  view.window = {0, 0, view.resized_width, view.resized_height};
  if (random.coin()) {
    view.window.x = random.in(-9, view.resized_width - 1);
    view.window.y = random.in(-9, view.resized_height - 1);
    view.window.width = random.in(std::max(1, 1 - view.window.x), view.resized_width + 9);
    view.window.height = random.in(std::max(1, 1 - view.window.y), view.resized_height + 9);
  }
  view.flip = random.coin();
  return view;
}

// The rows of the source rectangle, a few at a time, each time in a block that ends with the slack.
void feed(Resampler& resampler, const std::vector<uint8_t>& pixels, Rect source, int chunk) {
  const auto row = static_cast<std::ptrdiff_t>(3) * source.width;
  for (int y = 0; y < source.height; y += chunk) {
    const int count = std::min(chunk, source.height - y);
    const auto begin = pixels.begin() + row * y;
    std::vector<uint8_t> block(begin, begin + row * count);
    block.resize(block.size() + RowSink::kSlack);
    block.shrink_to_fit();
    resampler.rows(block.data(), static_cast<size_t>(row), y, count);
  }
  resampler.end();
}

size_t bytes_of(const StoreSpec& spec, Rect window) {
  return fastload::dtype_size(spec.dtype) * 3 * window.width * window.height;
}

StoreSpec random_spec(Random& random) {
  StoreSpec spec;
  spec.dtype = static_cast<DType>(random.in(0, 3));
  spec.channels_last = random.coin();
  if (spec.dtype != DType::kUint8 && random.coin()) {
    spec.normalize = true;
    spec.mean = {0.5, 0.25, 0.1};
    spec.std = {0.25, 2.0, 0.3};
  }
  return spec;
}

TEST(every_level_gives_the_same_bytes) {
  Random random(1);
  Resampler resampler;  // kept, as a thread keeps it
  const auto best = fastload::simd_level();
  const auto levels = fastload::test::machine_levels();
  for (int i = 0; i < 1500; ++i) {
    const View view = random_view(random);
    const Filter filter = static_cast<Filter>(random.in(0, 2));
    const Rect source = fastload::source_rect(view, filter);
    const StoreSpec spec = random_spec(random);
    const auto pixels = random.samples(3 * static_cast<size_t>(source.width) * source.height);
    const int chunk = random.in(1, 20);
    std::vector<uint8_t> wanted;
    for (const auto level : levels) {
      fastload::set_simd_level(fastload::simd_level_name(level));
      std::vector<uint8_t> found(bytes_of(spec, view.window));
      Store store(spec);
      store.begin(found.data(), view.window.width, view.window.height);
      resampler.begin(view, filter, store);
      feed(resampler, pixels, source, chunk);
      if (wanted.empty()) wanted = found;
      CHECK(found == wanted);
    }
  }
  fastload::set_simd_level(fastload::simd_level_name(best));
}

// The middles of the pixels that are made lie in the picture, however near to its border.
fastload::AxisSpec random_axis(Random& random) {
  fastload::AxisSpec axis;
  axis.in_size = random_side(random);
  axis.step = random.coin() ? random.in(1, 400) / 97.0 : random.in(1, 9) / 2.0;
  axis.out_size = axis.count =
      random.in(1, std::max(1, std::min(300, static_cast<int>(axis.in_size / axis.step))));
  const double room = std::max(0.0, axis.in_size - axis.step * axis.count);
  axis.from = room * random.in(0, 16) / 16 + (random.coin() ? axis.step * 0.49 : 0.0);
  if (random.coin()) axis.from = -0.49 * std::min(axis.step, 1.0 * axis.in_size);
  const double last = axis.from + (axis.count - 0.5) * axis.step;
  if (last >= axis.in_size) axis.from -= last - axis.in_size + 1e-9;
  if (axis.from + 0.5 * axis.step < 0) axis.from = -0.5 * axis.step;
  return axis;
}

TEST(every_level_fills_the_same_axis) {
  Random random(4);
  for (int i = 0; i < 3000; ++i) {
    const View view = random_view(random);
    fastload::AxisSpec spec = random_axis(random);
    if (random.coin() && view.crop.width != view.resized_width) {
      spec = {.in_size = view.crop.width, .out_size = view.resized_width};
      spec.first = view.window.x;
      spec.count = view.window.width;
      spec.mirrored = view.flip;
    }
    spec.filter = static_cast<Filter>(random.in(0, 2));
    const int multiple = 1 << random.in(0, 2);
    fastload::Axis wanted;
    fastload::fill_axis_scalar(spec, multiple, wanted);
    for (const auto level : fastload::test::machine_levels()) {
      fastload::Axis found;
      FASTLOAD_KERNEL_AT(level, fill_axis)(spec, multiple, found);
      CHECK_EQ(found.count, wanted.count);
      CHECK_EQ(found.stride, wanted.stride);
      CHECK_EQ(found.taps, wanted.taps);
      CHECK(std::equal(found.first.data(), found.first.data() + found.stride, wanted.first.data()));
      CHECK(std::equal(found.weights.data(), found.weights.data() + found.taps * found.stride,
                       wanted.weights.data()));
    }
  }
}

TEST(every_level_places_the_same_bytes) {
  Random random(2);
  Resampler resampler;
  const auto best = fastload::simd_level();
  const auto levels = fastload::test::machine_levels();
  for (int i = 0; i < 1500; ++i) {
    const fastload::Placing placing{random_axis(random), random_axis(random)};
    const Rect source = fastload::source_rect(placing);
    CHECK(source.x >= 0 && source.x + source.width <= placing.across.in_size);
    CHECK(source.y >= 0 && source.y + source.height <= placing.down.in_size);
    const Rect window{0, 0, placing.across.count, placing.down.count};
    const auto pixels = random.samples(3 * static_cast<size_t>(source.width) * source.height);
    const int chunk = random.in(1, 20);
    std::vector<uint8_t> wanted;
    for (const auto level : levels) {
      fastload::set_simd_level(fastload::simd_level_name(level));
      std::vector<uint8_t> found(bytes_of({}, window));
      Store store(StoreSpec{});
      store.begin(found.data(), window.width, window.height);
      resampler.begin(placing, store);
      feed(resampler, pixels, source, chunk);
      if (wanted.empty()) wanted = found;
      CHECK(found == wanted);
    }
  }
  fastload::set_simd_level(fastload::simd_level_name(best));
}

TEST(rows_out_of_order_are_refused) {
  const View view{{0, 0, 8, 8}, 4, 4, {0, 0, 4, 4}, false};
  std::vector<uint8_t> pixels(3 * 64 + RowSink::kSlack);
  std::vector<uint8_t> out(3 * 16);
  Store store(StoreSpec{});
  store.begin(out.data(), 4, 4);
  Resampler resampler;
  CHECK_THROWS(kState, "Rows must come in order", resampler.rows(pixels.data(), 24, 0, 1));
  resampler.begin(view, Filter::kBilinear, store);
  resampler.rows(pixels.data(), 24, 0, 3);
  CHECK_THROWS(kState, "row 3 of 8 next. Found: 1 rows from 4",
               resampler.rows(pixels.data(), 24, 4, 1));
  CHECK_THROWS(kState, "row 3 of 8 next. Found: 6 rows from 3",
               resampler.rows(pixels.data(), 24, 3, 6));
  CHECK_THROWS(kState, "needs 8 rows. Found: 3", resampler.end());
  resampler.begin(view, Filter::kBilinear, store);
  resampler.rows(pixels.data(), 24, 0, 8);
  resampler.end();
  CHECK_THROWS(kState, "needs 8 rows", resampler.end());
}

TEST(store_refuses_rows_outside_the_sample) {
  std::vector<uint8_t> pixels(3 * 16 + RowSink::kSlack);
  std::vector<uint8_t> out(3 * 16);
  Store store(StoreSpec{});
  CHECK_THROWS(kState, "Rows must be in [0, 0)", store.rows(pixels.data(), 12, 0, 1));
  store.begin(out.data(), 4, 4);
  CHECK_THROWS(kState, "Rows must be in [0, 4)", store.rows(pixels.data(), 12, 2, 3));
  CHECK_THROWS(kState, "Found: 1 rows from -1", store.rows(pixels.data(), 12, -1, 1));
}

}  // namespace
