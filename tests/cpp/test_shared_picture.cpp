// engine/shared_picture.h: parts of a picture from memory of exactly the promised size, and when
// they are decoded together.
#include <algorithm>
#include <vector>

#include "check.h"
#include "decode/cost.h"
#include "engine/engine.h"
#include "engine/shared_picture.h"
#include "made_set.h"
#include "picture.h"
#include "random.h"

namespace fastload::test {
namespace {

using Pixels = std::vector<uint8_t>;

constexpr int kMaxSide = 60;

Rect random_rect(Random& random, int width, int height) {
  Rect rect;
  rect.x = random.in(0, width - 1);
  rect.y = random.in(0, height - 1);
  rect.width = random.in(1, width - rect.x);
  rect.height = random.in(1, height - rect.y);
  return rect;
}

// Takes the rows of a part, with the slack behind each chunk looked at.
class Rows final : public RowSink {
 public:
  Rows(int width, size_t pixel_bytes) : row_bytes_(static_cast<size_t>(width) * pixel_bytes) {}
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override {
    CHECK_EQ(y, next_);
    next_ += count;
    for (int i = 0; i < count; ++i, pixels += stride) {
      found.insert(found.end(), pixels, pixels + row_bytes_);
      slack_ += pixels[row_bytes_ + kSlack - 1];  // under AddressSanitizer
    }
  }
  void restart() override { CHECK(false); }
  Pixels found;

 private:
  size_t row_bytes_;
  int next_ = 0;
  unsigned slack_ = 0;
};

Pixels part_of(const Pixels& picture, int width, size_t pixel_bytes, Rect part) {
  Pixels found;
  for (int y = part.y; y < part.y + part.height; ++y) {
    const size_t at = (static_cast<size_t>(y) * width + part.x) * pixel_bytes;
    const uint8_t* const from = picture.data() + at;
    found.insert(found.end(), from, from + static_cast<size_t>(part.width) * pixel_bytes);
  }
  return found;
}

TEST(parts_are_as_if_each_were_decoded) {
  Random random(1);
  Pixels memory;
  SharedPicture shared(memory);
  for (int round = 0; round < 300; ++round) {
    const int width = random.in(1, kMaxSide), height = random.in(1, kMaxSide);
    const auto pixel_bytes = static_cast<size_t>(random.in(1, 8));
    const Pixels picture = random.samples(static_cast<size_t>(width) * height * pixel_bytes);
    std::vector<Rect> parts;
    for (int i = random.in(1, 10); i > 0; --i) parts.push_back(random_rect(random, width, height));
    const Rect all = around(parts);
    memory.clear();
    memory.shrink_to_fit();
    shared.begin(all, pixel_bytes);
    const Pixels rows = part_of(picture, width, pixel_bytes, all);
    const size_t stride = static_cast<size_t>(all.width) * pixel_bytes;
    for (int y = 0; y < all.height;) {
      const int count = std::min(random.in(1, 20), all.height - y);
      shared.rows(rows.data() + static_cast<size_t>(y) * stride, stride, y, count);
      y += count;
    }
    for (const Rect& part : parts) {
      Rows sink(part.width, pixel_bytes);
      shared.give(part, sink);
      CHECK(sink.found == part_of(picture, width, pixel_bytes, part));
    }
  }
}

TEST(the_smallest_rectangle_around_some) {
  const std::vector<Rect> parts{{5, 9, 2, 3}, {3, 10, 3, 1}, {4, 2, 1, 4}};
  CHECK(around(parts) == (Rect{3, 2, 4, 10}));
  CHECK(around({parts.data(), 1}) == parts[0]);
}

ImageInfo jpeg(uint32_t width, uint32_t height) {
  ImageInfo info;
  info.codec = Codec::kJpeg;
  info.width = width;
  info.height = height;
  return info;
}

TEST(together_where_it_is_cheaper) {
  const ImageInfo photo = jpeg(640, 480);
  const std::vector<uint8_t> entry(7);
  const EntryPoints entries{{entry.data(), entry.size()}, 64};
  const std::vector<Rect> apart{{0, 0, 64, 64}, {570, 410, 64, 64}},
      same{{0, 0, 600, 400}, {9, 9, 600, 400}};
  const size_t bytes = 150'000;
  CHECK(pays_once(photo, bytes, same, entries, 3));
  CHECK(!pays_once(photo, bytes, apart, entries, 3));
  // Without entry points each has to read all that lies above it.
  const std::vector<Rect> low{{0, 380, 64, 64}, {570, 410, 64, 64}};
  CHECK(pays_once(photo, bytes, low, {}, 3));
  ImageInfo progressive = photo;
  progressive.flags = ImageInfo::kProgressive;
  CHECK(pays_once(progressive, bytes, apart, entries, 3));
}

TEST(pixels_in_memory_are_never_copied_for_it) {
  ImageInfo raw = jpeg(640, 480);
  raw.codec = Codec::kRaw;
  const std::vector<Rect> same{{0, 0, 600, 400}, {0, 0, 600, 400}};
  CHECK(!pays_once(raw, 640 * 480 * 3, same, {}, 3));
  ImageInfo gif = jpeg(640, 480);
  gif.flags = ImageInfo::kNeedsFallback;
  CHECK_EQ(decode_cost(gif, 9999, {0, 0, 640, 480}, {}), 0.0);
}

TEST(damage_ends_what_is_shared) {
  Pixels memory;
  SharedPicture shared(memory);
  shared.begin({0, 0, 2, 2}, 3);
  CHECK_THROWS(kDecode, "damaged", shared.restart());
}

// A batch of JPEGs under `count` views, which are decoded as `once` says; `sources` of them work on
// the whole picture.
Pixels batch(Reader* reader, const std::vector<int64_t>& ids, uint32_t count, DecodeOnce once,
             uint32_t sources = 0) {
  std::vector<ViewPlan> views(count);
  std::vector<FieldPlan> fields(count);
  for (uint32_t i = 0; i < count; ++i) {
    const int side = 5 + 9 * static_cast<int>(i);
    const auto length = static_cast<double>(side);
    views[i].out_width = views[i].out_height = side;
    views[i].geometry.add("random_resized_crop", {length, length, 0.05, 0.9, 3.0 / 4, 4.0 / 3});
    if (i < sources) views[i].source = PixelSpec({{"contrast", 0.7, {1.5}, {}}});
    fields[i].form = FieldPlan::Form::kPicture;
    fields[i].view = i;
  }
  const SamplePlan plan{FieldsPlan(views, fields), 7, {}, 0, once};
  Pixels memory(plan.fields.picture_bytes() * ids.size(), 77);
  std::vector<FieldPlace> places(count);
  size_t begin = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const auto side = static_cast<size_t>(views[i].out_width);
    places[i].stride = side * side * 3;
    places[i].row_bytes = side * 3;
    places[i].room = {views[i].out_height, views[i].out_width};
    places[i].memory = std::span(memory).subspan(begin, places[i].stride * ids.size());
    begin += places[i].memory.size();
  }
  Engine engine(Sources({{reader, nullptr, {}, 0}}), plan, {2, 0, {}}, nullptr, {});
  const Engine::Ticket ticket = engine.submit({places, ids, {}, 0, nullptr, nullptr});
  CHECK(engine.wait(ticket, 60.0));
  CHECK_EQ(engine.collect(ticket).size(), 0u);
  return memory;
}

TEST(views_are_the_same_decoded_together_and_apart) {
  Random random(3);
  std::vector<Pixels> files;
  for (int i = 0; i < 24; ++i) {
    Picture picture;
    picture.width = random.in(1, 90);
    picture.height = random.in(1, 90);
    picture.sampling = i % 3 == 0 ? 0 : i % 3 == 1 ? 0x11 : 0x22;
    files.push_back(as_jpeg(random, picture));
  }
  MadeSet set(files);
  std::vector<int64_t> ids;
  for (int i = 0; i < 24; ++i) ids.push_back(i);
  for (const uint32_t count : {1u, 2u, 5u}) {
    const Pixels apart = batch(&set.reader(), ids, count, DecodeOnce::kNever);
    CHECK(batch(&set.reader(), ids, count, DecodeOnce::kAlways) == apart);
    CHECK(batch(&set.reader(), ids, count, DecodeOnce::kCheaper) == apart);
    for (uint32_t sources = 1; sources <= std::min(count, 3u); ++sources) {
      const Pixels changed = batch(&set.reader(), ids, count, DecodeOnce::kNever, sources);
      CHECK(changed != apart);
      CHECK(batch(&set.reader(), ids, count, DecodeOnce::kAlways, sources) == changed);
      CHECK(batch(&set.reader(), ids, count, DecodeOnce::kCheaper, sources) == changed);
    }
  }
}

}  // namespace
}  // namespace fastload::test
