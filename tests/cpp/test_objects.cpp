// sample/outline_runs and sample/objects: small cases whose answers are written down, and values
// that no packer makes. What pycocotools and torchvision make of many others: tests/sample.
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <vector>

#include "check.h"
#include "random.h"
#include "sample/masks.h"
#include "sample/objects.h"
#include "sample/outline_runs.h"
#include "sample/shapes.h"

namespace fastload::test {
namespace {

using Ends = RunEnds;
using Outline = std::vector<double>;

Ends ends_of(uint32_t height, uint32_t width, const std::vector<Outline>& outlines) {
  OutlineRuns runs;
  runs.begin(height, width);
  for (const Outline& outline : outlines) runs.add(outline);
  Ends ends;
  runs.ends(ends);
  return ends;
}

// pycocotools 2.0.11: frPyObjects of each outline, merged.
TEST(outlines_are_the_runs_that_pycocotools_has) {
  CHECK(ends_of(5, 6, {{1, 1, 4, 1, 4, 3, 1, 3}}) == (Ends{6, 8, 11, 13, 16, 18, 30}));
  CHECK(ends_of(5, 6, {{0, 0, 6, 0, 0, 5}}) == (Ends{0, 9, 10, 13, 15, 17, 20, 21, 30}));
  CHECK(ends_of(5, 5, {{1.5, .5, 4.5, 4.5, .5, 3.5}}) == (Ends{6, 9, 12, 14, 18, 19, 24, 25}));
  CHECK(ends_of(4, 5, {{-2, -2, 3, -2, 3, 2, -2, 2}}) == (Ends{0, 2, 4, 6, 8, 10, 20}));
  // Those that meet are one run, and what lies within another is nothing more.
  CHECK(ends_of(5, 6,
                {{1, 1, 4, 1, 4, 3, 1, 3}, {1, 3, 2, 3, 2, 5, 1, 5}, {2, 1, 3, 1, 3, 2, 2, 2}}) ==
        (Ends{6, 10, 11, 13, 16, 18, 30}));
}

TEST(outlines_without_pixels_have_one_run) {
  for (const std::vector<Outline>& outlines :
       std::initializer_list<std::vector<Outline>>{{},
                                                   {{2, 2, 2, 2, 2, 2}},
                                                   {{10, 1, 20, 1, 20, 3}},
                                                   {{1, 50, 3, 50, 3, 90}},
                                                   {{-9, -9, -1, -9, -1, -1}}}) {
    const Ends ends = ends_of(4, 4, outlines);
    uint64_t inside = 0;
    for (size_t i = 1; i < ends.size(); i += 2) inside += ends[i] - ends[i - 1];
    CHECK_EQ(inside, uint64_t{0});
    CHECK_EQ(ends.back(), uint64_t{16});
  }
}

TEST(outlines_of_any_numbers_end_with_the_picture) {
  OutlineRuns runs;
  const double most = 1 << 27;
  for (const double hostile : {1e300, -1e300, 1.01 * most, static_cast<double>(NAN),
                               std::numeric_limits<double>::infinity()}) {
    runs.begin(8, 8);
    CHECK_THROWS(kFormat, "has the coordinate",
                 runs.add(std::vector<double>{0, 0, hostile, 1, 3, 3}));
  }
  CHECK_THROWS(kLimit, "2^32 pixels", runs.begin(1 << 17, 1 << 17));
  Random random(3);
  Ends ends;
  for (int i = 0; i < 3000; ++i) {
    const int height = random.in(1, 30), width = random.in(1, 30);
    runs.begin(static_cast<uint32_t>(height), static_cast<uint32_t>(width));
    for (int outlines = random.in(0, 3); outlines > 0; --outlines) {
      Outline outline(2 * static_cast<size_t>(random.in(3, 9)));
      const int reach = i % 50 == 0 ? 1 << 20 : 60;
      for (double& at : outline) at = random.in(-10 * reach, 10 * reach) / 10.0;
      runs.add(outline);
    }
    runs.ends(ends);
    CHECK_EQ(ends.back(), static_cast<uint64_t>(height * width));
    for (size_t k = 1; k < ends.size(); ++k) CHECK(ends[k - 1] <= ends[k]);
    for (size_t k = 2; k < ends.size(); ++k) CHECK(ends[k - 1] < ends[k]);
  }
}

std::vector<uint8_t> bytes_of(const std::vector<float>& numbers) {
  std::vector<uint8_t> bytes(numbers.size() * sizeof(float));
  if (!bytes.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

using Rows = std::vector<uint32_t>;
using Floats = std::vector<float>;

// Of 100 x 80 pixels the right half, mirrored, at twice the size.
View half_view() {
  View view;
  view.crop = {50, 0, 50, 80};
  view.resized_width = 100;
  view.resized_height = 160;
  view.window = {0, 0, 100, 160};
  view.area = {0, 0, 100, 160};
  view.flip = true;
  return view;
}

Kept kept_of(const ObjectsPlan& plan, const Floats& boxes,
             const std::vector<uint8_t>& without = {}) {
  const View view = half_view();
  const Motions none;
  Kept kept;
  keep_objects(bytes_of(boxes), without, plan, {&view, 100, 80, 100, 80, &none}, kept);
  return kept;
}

const Floats kBoxes{60, 10, 70,   20,   // within
                    40, 10, 60,   20,   // over the edge of the crop
                    10, 10, 30,   20,   // outside
                    60, 10, 60.2, 20,   // thin
                    90, 70, 120,  99};  // beyond the picture

TEST(boxes_are_clipped_and_dropped_as_the_plan_says) {
  ObjectsPlan plan;
  const Kept all = kept_of(plan, kBoxes);
  CHECK(all.rows == (Rows{0, 1, 2, 3, 4}));
  CHECK(Floats(all.boxes.begin() + 4, all.boxes.begin() + 8) == (Floats{80, 20, 120, 40}));
  plan.clip = true;
  const Kept clipped = kept_of(plan, kBoxes);
  CHECK(clipped.rows == all.rows);
  CHECK(Floats(clipped.boxes.begin() + 4, clipped.boxes.begin() + 8) == (Floats{80, 20, 100, 40}));
  CHECK(Floats(clipped.boxes.begin() + 8, clipped.boxes.begin() + 12) ==
        (Floats{100, 20, 100, 40}));
  plan.drop = true;
  const Kept kept = kept_of(plan, kBoxes);
  CHECK(kept.rows == (Rows{0, 1, 4}));
  CHECK(kept.boxes == (Floats{60, 20, 80, 40, 80, 20, 100, 40, 0, 140, 20, 160}));
  plan.without = 1;
  CHECK(kept_of(plan, kBoxes, {1, 0, 0, 0, 0}).rows == (Rows{1, 4}));
  plan.min_size = 0;  // more than none
  plan.min_area = 0;
  CHECK(kept_of(plan, kBoxes, {0, 0, 0, 0, 1}).rows == (Rows{0, 1, 3}));
  CHECK(kept_of(plan, {}, {}).rows.empty());
}

TEST(boxes_come_back_in_their_format) {
  for (const PointFormat format : {PointFormat::kXywh, PointFormat::kCxcywh}) {
    ObjectsPlan plan;
    plan.format = format;
    plan.relative = true;
    const bool centred = format == PointFormat::kCxcywh;
    // 60 10 70 20 of 100 x 80 becomes 60 20 80 40 of 100 x 160.
    const Kept kept =
        kept_of(plan, centred ? Floats{.65F, .1875F, .1F, .125F} : Floats{.6F, .125F, .1F, .125F});
    const Floats wanted =
        centred ? Floats{.7F, .1875F, .2F, .125F} : Floats{.6F, .125F, .2F, .125F};
    for (size_t i = 0; i < 4; ++i) CHECK(std::abs(kept.boxes[i] - wanted[i]) < 1e-6F);
  }
}

TEST(values_that_are_no_boxes_are_refused) {
  ObjectsPlan plan;
  plan.without = 1;
  CHECK_THROWS(kFormat, "no whole boxes", kept_of(plan, {1, 2, 3}));
  CHECK_THROWS(kFormat, "rows that say which to drop", kept_of(plan, kBoxes, {0, 1}));
  plan.clip = plan.drop = true;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Kept& kept : {kept_of(plan, {nan, nan, nan, nan}), kept_of(plan, {nan, 1, 60, 2}),
                           kept_of(plan, {70, 20, 60, 10})}) {
    CHECK(kept.rows.empty());
  }
  const Kept whole = kept_of(plan, {-infinity, -infinity, infinity, infinity});
  CHECK(whole.boxes == (Floats{0, 0, 100, 160}));
}

// A value that is made of the objects of another says the same.
TEST(values_of_objects_are_made_as_they_were_packed) {
  for (const PointFormat format :
       {PointFormat::kPolygons, PointFormat::kAreas, PointFormat::kMixed}) {
    ShapesMaker maker(format);
    const std::vector<uint32_t> runs{3, 4, 5};
    const Outline first{0, 0, 4, 0, 4, 3}, second{1, 1, 2, 1, 2, 2.5};
    if (format != PointFormat::kAreas) {
      maker.begin_outlines(2);
      maker.add_outline(first);
      maker.add_outline(second);
      maker.begin_outlines(0);
    }
    if (format != PointFormat::kPolygons) maker.add_area(3, 4, runs);
    const std::vector<uint8_t> value = maker.value();
    const Shapes shapes(value, format);
    std::vector<uint32_t> all;
    for (const Shapes::Object& object : shapes.objects()) {
      all.push_back(static_cast<uint32_t>(all.size()));
      if (!object.is_area) continue;
      std::vector<uint32_t> found;
      shapes.runs(object, found);
      CHECK(found == runs);
      CHECK_EQ(object.height, 3U);
      CHECK_EQ(object.width, 4U);
    }
    CHECK_EQ(all.size(), size_t{format == PointFormat::kMixed      ? 3U
                                : format == PointFormat::kPolygons ? 2U
                                                                   : 1U});
    CHECK(shapes.of(all) == value);
    if (format == PointFormat::kAreas) continue;
    Outline points;
    shapes.points(shapes.polygons()[1], points);
    CHECK(points == second);
    for (size_t cut = 1; cut < value.size(); ++cut) {
      CHECK_THROWS(kFormat, "of objects",
                   Shapes(std::span(value).first(value.size() - cut), format));
    }
  }
}

}  // namespace
}  // namespace fastload::test
