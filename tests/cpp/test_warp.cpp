// transform/pixels/warp: every level's pixels are those of warp_plainly() and move_nearest(). What
// those are is compared with Pillow in tests/transform/test_motion.py.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "check.h"
#include "levels.h"
#include "random.h"
#include "sample/areas.h"
#include "sample/points.h"
#include "transform/pixels/stage.h"
#include "transform/pixels/warp.h"
#include "transform/pixels/warp_kernels.h"

namespace {

using fastload::Canvas;
using fastload::Motion;
using fastload::RowSink;
using fastload::Warp;
using fastload::WarpFilter;
using fastload::test::Random;
using Bytes = std::vector<uint8_t>;

double part(Random& random) { return random.in(-1000, 1000) / 1000.0; }

// Near to the identity or anything, now and then with fractions that are constant or zero.
Motion random_motion(Random& random, int width, int height) {
  Motion motion;
  auto& a = motion.a;
  const int kind = random.in(0, 6);
  if (kind == 6) {  // mirrored, and moved by whole pixels
    a[0] = random.coin() ? -1 : 1;
    a[4] = random.coin() ? -1 : 1;
    a[2] = a[0] < 0 ? random.in(width - 3, width + 3) : random.in(-3, 3);
    a[5] = a[4] < 0 ? random.in(height - 3, height + 3) : random.in(-3, 3);
    return motion;
  }
  a[2] = part(random) * width * (random.coin() ? 1.0 : 0.1);
  a[5] = part(random) * height * (random.coin() ? 1.0 : 0.1);
  if (kind == 0 && random.coin()) {  // scaled alone
    a[0] = std::ldexp(1.0 + 0.9 * part(random), random.in(-2, 3));
    a[4] = random.in(0, 3) == 0 ? random.in(-3, 3) : 3 * part(random);
    if (random.in(0, 3) == 0) a[0] = random.in(1, 5);
    if (random.in(0, 3) == 0) a[2] = random.in(-20, 20) / 8.0;
    if (random.in(0, 3) == 0) a[5] = random.in(-20, 20) / 8.0;
  }
  if (kind == 0) return motion;
  if (kind == 1) a[1] = part(random);
  if (kind == 2) a[3] = part(random);
  if (kind >= 3) {
    a[0] = 1.5 * part(random);
    a[1] = 1.5 * part(random);
    a[3] = 1.5 * part(random);
    a[4] = 1.5 * part(random);
  }
  if (kind == 5) {
    a[6] = part(random) / width;
    a[7] = part(random) / height;
    motion.perspective = true;
  }
  if (random.in(0, 30) == 0) a[static_cast<size_t>(random.in(0, 5))] = 1e300;
  if (random.in(0, 30) == 0) {
    a[static_cast<size_t>(random.in(0, 5))] = std::numeric_limits<double>::quiet_NaN();
  }
  return motion;
}

Bytes warped(const Bytes& pixels, int width, int height, const Warp& warp) {
  Canvas canvas;
  canvas.begin(width, height);
  std::memcpy(canvas.picture().pixels, pixels.data(), pixels.size());
  fastload::warp(warp, canvas);
  const uint8_t* const found = canvas.picture().pixels;
  return {found, found + pixels.size()};
}

// Pixel by pixel.
Bytes plainly(Bytes pixels, int width, int height, const Warp& warp, int to_width, int to_height) {
  Bytes made(size_t{3} * static_cast<size_t>(to_width) * static_cast<size_t>(to_height));
  if (warp.filter == WarpFilter::kNearest) {
    move_nearest_into(warp.motion, false, 3, width, height, pixels.data(), warp.fill.data(),
                      to_width, to_height, made.data());
  } else {
    warp_plainly({pixels.data(), width, height}, warp, {made.data(), to_width, to_height});
  }
  return made;
}

// Along one axis only; near to whole numbers, halves and other parts now and then, and beyond.
Motion random_shear(Random& random, int width, int height) {
  Motion motion;
  auto& a = motion.a;
  const bool along_x = random.coin();
  double& step = along_x ? a[1] : a[3];
  double& shift = along_x ? a[2] : a[5];
  if (random.in(0, 2) != 0) step = 0.5 * part(random) + 1e-7 * part(random);
  if (random.in(0, 4) == 0) step = random.in(-20, 20) / 10.0;
  if (random.coin()) shift = part(random) * (along_x ? width : height);
  if (random.in(0, 4) == 0) {
    const double next = std::ldexp(part(random), -random.in(10, 60));
    shift = random.in(-40, 40) / static_cast<double>(random.in(1, 8)) + next;
  }
  if (random.in(0, 60) == 0) shift = 1e9 * part(random);
  return motion;
}

// Noise, black and white, few values side by side, or a ramp.
Bytes random_pixels(Random& random, int width, int height) {
  Bytes pixels(size_t{3} * static_cast<size_t>(width) * static_cast<size_t>(height));
  const int kind = random.in(0, 3);
  for (size_t i = 0; i < pixels.size(); ++i) {
    const uint8_t value = random.sample();
    if (kind == 0) pixels[i] = value;
    if (kind == 1) pixels[i] = value < 128 ? 0 : 255;
    if (kind == 2) pixels[i] = value < 200 && i > 2 ? pixels[i - 3] : value;
    if (kind == 3) pixels[i] = static_cast<uint8_t>(i / 3 * (i % 3 + 1));
  }
  return pixels;
}

TEST(every_level_gives_the_plain_pixels) {
  const auto levels = fastload::test::machine_levels();
  Random random(11);
  int changed = 0;
  for (int i = 0; i < 6000; ++i) {
    const int width = random.in(1, 70), height = random.in(1, 40);
    const Bytes pixels = random_pixels(random, width, height);
    const Warp warp{
        random.coin() ? random_motion(random, width, height) : random_shear(random, width, height),
        static_cast<WarpFilter>(random.in(0, 2)),
        {random.sample(), random.sample(), random.sample()}};
    const Bytes wanted = plainly(pixels, width, height, warp, width, height);
    changed += wanted != pixels;
    for (const auto level : levels) {
      fastload::set_simd_level(fastload::simd_level_name(level));
      CHECK(warped(pixels, width, height, warp) == wanted);
    }
    fastload::set_simd_level(fastload::simd_level_name(levels.back()));
  }
  CHECK(changed > 4000);
}

// What those are is compared with Pillow in tests/contract/test_mosaics.py.
TEST(every_level_gives_the_plain_pixels_of_another_size) {
  const auto levels = fastload::test::machine_levels();
  Random random(21);
  for (int i = 0; i < 3000; ++i) {
    const int width = random.in(1, 60), height = random.in(1, 40);
    const int to_width = random.in(1, 80), to_height = random.in(1, 40);
    Bytes pixels = random_pixels(random, width, height);
    pixels.resize(pixels.size() + RowSink::kSlack);
    const Warp warp{
        random.coin() ? random_motion(random, width, height) : random_shear(random, width, height),
        static_cast<WarpFilter>(random.in(0, 2)),
        {random.sample(), random.sample(), random.sample()}};
    const size_t bytes = size_t{3} * static_cast<size_t>(to_width) * static_cast<size_t>(to_height);
    const auto made = [&](std::string_view level) {
      fastload::set_simd_level(level);
      fastload::Buffer<uint8_t> scratch, to;
      to.reserve(bytes + RowSink::kSlack);
      warp_into(warp, {pixels.data(), width, height},
                [&](size_t size) {
                  scratch.reserve(size);
                  return scratch.data();
                },
                {to.data(), to_width, to_height});
      return Bytes(to.data(), to.data() + bytes);
    };
    const Bytes wanted = plainly(pixels, width, height, warp, to_width, to_height);
    for (const auto level : levels) CHECK(made(fastload::simd_level_name(level)) == wanted);
    fastload::set_simd_level(fastload::simd_level_name(levels.back()));
  }
}

TEST(pixels_of_any_size_move_as_those_of_three_bytes) {
  Random random(12);
  for (int i = 0; i < 500; ++i) {
    const int width = random.in(1, 40), height = random.in(1, 40);
    const size_t count = static_cast<size_t>(width) * static_cast<size_t>(height);
    const Motion motion = random_motion(random, width, height);
    Bytes pixels(3 * count);
    for (uint8_t& value : pixels) value = random.sample();
    Bytes wanted(3 * count), found;
    const uint8_t fill[] = {7, 7, 7, 7, 7};
    move_nearest(motion, false, 3, width, height, pixels.data(), fill, wanted.data());
    for (const size_t size : {size_t{1}, size_t{2}, size_t{4}, size_t{5}}) {
      Bytes from(size * count, 0);
      for (size_t k = 0; k < count; ++k) from[size * k] = pixels[3 * k];
      found.assign(size * count, 0);
      move_nearest(motion, false, size, width, height, from.data(), fill, found.data());
      for (size_t k = 0; k < count; ++k) CHECK_EQ(found[size * k], wanted[3 * k]);
    }
  }
}

class Collected final : public RowSink {
 public:
  void rows(const uint8_t* pixels, size_t stride, int, int count) override {
    bytes.assign(pixels, pixels + stride * static_cast<size_t>(count));
  }
  void restart() override {}
  Bytes bytes;
};

// Ids in rows one by one, and the motions that the stage should have drawn, one after the other.
TEST(ids_follow_what_moves_pixels) {
  Random random(13);
  fastload::FollowingStage stage;
  int moved = 0;
  for (int i = 0; i < 400; ++i) {
    const int width = random.in(1, 40), height = random.in(1, 40);
    const fastload::PixelFormat format{1, random.coin() ? 8 : 16, true};
    const size_t row = format.pixel_bytes() * static_cast<size_t>(width);
    Bytes ids = random.samples(row * static_cast<size_t>(height)), others(ids.size());
    fastload::PixelNode turn{"rotate", 0.5, {}, {}};
    for (const double number : {0.0, 0.0, 0.0, 0.0, 1.0, 9.0, 9.0, 9.0}) {
      turn.numbers.emplace_back(number);
    }
    turn.numbers[0] = {"uniform", {-90.0, 90.0}};
    const fastload::PixelSpec spec({{"horizontal_flip", 0.5, {}, {}}, turn, {"invert", 1, {}, {}}});
    const fastload::SampleRng rng{{1, 2}, static_cast<uint64_t>(i), 0};
    Collected found;
    RowSink& first = stage.begin(spec, rng, format, 77, width, height, found);
    fastload::DrawnPixels drawn;
    std::vector<Motion> motions;
    spec.draw(rng, drawn);
    drawn.motions(width, height, motions);
    CHECK_EQ(&first == &found, motions.empty());
    for (int y = 0; y < height && !motions.empty(); ++y) {
      first.rows(ids.data() + row * static_cast<size_t>(y), row, y, 1);
    }
    stage.end();
    const uint8_t fill[] = {77, 0};
    for (const Motion& motion : motions) {
      move_nearest(motion, format.bits == 16, format.pixel_bytes(), width, height, ids.data(), fill,
                   others.data());
      ids.swap(others);
    }
    CHECK(motions.empty() || found.bytes == ids);
    moved += !motions.empty();
  }
  CHECK(moved > 200);
}

// `whole` in a picture of width x height, of which `part` is kept.
Bytes cut_out(const Bytes& whole, int width, const fastload::Rect& part) {
  Bytes found;
  for (int y = part.y; y < part.y + part.height; ++y) {
    const auto row = whole.begin() + y * width + part.x;
    found.insert(found.end(), row, row + part.width);
  }
  return found;
}

fastload::Rect random_part(Random& random, int width, int height) {
  const int x = random.in(0, width - 1), y = random.in(0, height - 1);
  return {x, y, random.in(1, width - x), random.in(1, height - y)};
}

TEST(parts_that_are_moved_are_those_of_the_whole_picture) {
  Random random(15);
  int shown = 0, lines = 0;
  for (int i = 0; i < 3000; ++i) {
    const int width = random.in(1, 40), height = random.in(1, 40);
    const int from_width = random.in(1, 50), from_height = random.in(1, 50);
    Motion motion = random_motion(random, from_width, from_height);
    if (i % 7 == 0) motion.a[2] += 40000;  // Pillow's rule for what fits no fixed point
    if (i % 7 == 0) motion.a[0] = -40000.0 / width;
    const fastload::Rect known = random_part(random, from_width, from_height);
    const fastload::Rect wanted = random_part(random, width, height);
    const int stride = known.width + random.in(0, 3);
    const Bytes part = random.samples(static_cast<size_t>(stride * known.height));
    Bytes from(static_cast<size_t>(from_width * from_height)),
        to(static_cast<size_t>(width * height));
    for (int y = 0; y < known.height; ++y) {
      std::copy_n(part.begin() + y * stride, known.width,
                  from.begin() + (known.y + y) * from_width + known.x);
    }
    const uint8_t outside = 0;
    move_nearest_into(motion, false, 1, from_width, from_height, from.data(), &outside, width,
                      height, to.data());
    Bytes found(static_cast<size_t>(wanted.width * wanted.height), 9);
    move_nearest_part(motion, known, part.data(), static_cast<size_t>(stride), width, height,
                      wanted, found.data());
    const Bytes expected = cut_out(to, width, wanted);
    CHECK(found == expected);
    shown += std::count(found.begin(), found.end(), 0) < wanted.width * wanted.height;
    std::vector<int> columns, rows;
    if (!nearest_lines(motion, from_width, from_height, width, height, columns, rows)) continue;
    ++lines;
    for (int y = 0; y < height; ++y) {
      for (int x = 0; x < width; ++x) {
        const int column = columns[static_cast<size_t>(x)], row = rows[static_cast<size_t>(y)];
        const uint8_t pixel =
            column < 0 || row < 0 ? 0 : from[static_cast<size_t>(row * from_width + column)];
        CHECK_EQ(pixel, to[static_cast<size_t>(y * width + x)]);
      }
    }
  }
  CHECK(shown > 100);
  CHECK(lines > 300);
}

TEST(points_and_areas_of_any_motion_stay_within_their_bytes) {
  Random random(14);
  for (int i = 0; i < 1000; ++i) {
    const int width = random.in(1, 40), height = random.in(1, 40);
    const fastload::View view{{0, 0, width, height}, width, height, {0, 0, width, height}, false};
    const std::vector<Motion> motions(static_cast<size_t>(random.in(1, 3)),
                                      random_motion(random, width, height));
    const std::vector<Motion> none;
    const auto pixels = static_cast<uint32_t>(width * height), inside = pixels / 3;
    const std::vector<uint32_t> words{
        1, static_cast<uint32_t>(height), static_cast<uint32_t>(width), 2, pixels - inside, inside};
    const Bytes area(reinterpret_cast<const uint8_t*>(words.data()),
                     reinterpret_cast<const uint8_t*>(words.data() + words.size()));
    const auto view_at = [&](int, int) { return view; };
    const Bytes found = fastload::move_areas(area, view_at, {{}, motions});
    // The whole picture is seen, so before and after the cut are the same.
    CHECK(fastload::move_areas(area, view_at, {motions, {}}, {width, height}) == found);
    std::vector<Motion> doubled;
    for (const Motion& motion : motions) doubled.push_back(motion.at_size(0.5, 0.5));
    CHECK(fastload::move_areas(area, view_at, {doubled, {}}, {2 * width, 2 * height}) == found);
    std::vector<uint32_t> runs(found.size() / 4);
    std::memcpy(runs.data(), found.data(), found.size());
    uint64_t sum = 0;
    for (size_t k = 4; k < runs.size(); ++k) sum += runs[k];
    CHECK_EQ(sum, pixels);
    const auto side = static_cast<uint32_t>(width);
    const fastload::PointMap map(view, side, static_cast<uint32_t>(height), side,
                                 static_cast<uint32_t>(height),
                                 {i % 2 == 0 ? motions : none, motions});
    std::vector<float> box{1, 2, 3, 4, 5, 6, 7, 8};
    map.move({reinterpret_cast<uint8_t*>(box.data()), 32}, fastload::PointFormat::kXywh, false);
    CHECK(!(box[2] < 0) && !(box[7] < 0));
  }
}

}  // namespace
