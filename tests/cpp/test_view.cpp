// transform/view.h and transform/geometry: chains of steps in any order against the same done to a
// picture one after the other. Chains that resize, and all fields of samples, are tested against
// Pillow and torchvision in tests/transform and tests/sample.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "random.h"
#include "sample/points.h"
#include "transform/nearest.h"
#include "transform/view.h"

namespace fastload::test {
namespace {

// A picture of numbers; fill is -1.
struct Grid {
  int width = 0, height = 0;
  std::vector<int> at;

  [[nodiscard]] int get(int x, int y) const {
    const bool inside = x >= 0 && y >= 0 && x < width && y < height;
    return inside ? at[static_cast<size_t>(y) * width + x] : -1;
  }
  template <class From>
  [[nodiscard]] Grid made(int wide, int high, From from) const {
    Grid grid{wide, high, {}};
    for (int y = 0; y < high; ++y) {
      for (int x = 0; x < wide; ++x) {
        const auto [from_x, from_y] = from(x, y);
        grid.at.push_back(get(from_x, from_y));
      }
    }
    return grid;
  }
  bool operator==(const Grid&) const = default;
};

using Place = std::pair<int, int>;
using Numbers = std::vector<double>;

Grid numbered(int width, int height) {
  Grid grid{width, height, {}};
  for (int i = 0; i < width * height; ++i) grid.at.push_back(i);
  return grid;
}

// As numpy.pad: where place `at` beside [0, size) comes from.
int bordered(Border border, int at, int size) {
  while (at < 0 || at >= size) {
    if (border == Border::kEdge) return std::clamp(at, 0, size - 1);
    const int last = border == Border::kReflect ? 0 : 1;
    if (size == 1) return 0;
    at = at < 0 ? -at - last : 2 * (size - 1) - at + last;
  }
  return at;
}

// torchvision's center_crop along one axis.
int middle(int size, int crop) {
  return crop > size ? -((crop - size) / 2) : static_cast<int>(std::nearbyint((size - crop) / 2.0));
}

struct Chain {
  GeometrySpec spec;
  Grid wanted;
  std::string name;
  bool filled = false, bordered = false;

  void step(const char* of, const Numbers& numbers) {
    spec.add(of, numbers);
    name += std::string(" ") + of;
  }

  void flip() {
    step("horizontal_flip", {1});
    const Grid now = wanted;
    wanted = now.made(now.width, now.height, [&](int x, int y) {
      return Place{now.width - 1 - x, y};
    });
  }
  void upside_down() {
    step("vertical_flip", {1});
    const Grid now = wanted;
    wanted = now.made(now.width, now.height, [&](int x, int y) {
      return Place{x, now.height - 1 - y};
    });
  }
  void centre(int width, int height) {
    step("center_crop", {double(height), double(width)});
    const Grid now = wanted;
    const int left = middle(now.width, width), top = middle(now.height, height);
    filled = filled || width > now.width || height > now.height;
    wanted = now.made(width, height, [&](int x, int y) { return Place{x + left, y + top}; });
  }
  void pad(int left, int top, int right, int bottom) {
    step("pad", {double(left), double(top), double(right), double(bottom)});
    padded(left, top, right, bottom);
  }
  void below(int width, int height) {
    step("pad_below", {double(height), double(width)});
    padded(0, 0, std::max(width - wanted.width, 0), std::max(height - wanted.height, 0));
  }
  void padded(int left, int top, int right, int bottom) {
    filled = true;
    const Grid now = wanted;
    wanted = now.made(now.width + left + right, now.height + top + bottom,
                      [&](int x, int y) { return Place{x - left, y - top}; });
  }
  void border(int left, int top, int right, int bottom, Border how) {
    step("pad_border", {double(left), double(top), double(right), double(bottom), double(how)});
    bordered = true;
    const Grid now = wanted;
    wanted = now.made(now.width + left + right, now.height + top + bottom, [&](int x, int y) {
      return Place{test::bordered(how, x - left, now.width),
                   test::bordered(how, y - top, now.height)};
    });
  }
};

Grid shown(const View& view, const Grid& picture) {
  std::vector<int> columns, rows;
  nearest_positions(view, columns, rows);
  const Grid cut = picture.made(view.window.width, view.window.height, [&](int x, int y) {
    return Place{columns[static_cast<size_t>(x)], rows[static_cast<size_t>(y)]};
  });
  if (view.quarter == 0) return cut;
  CHECK_EQ(view.quarter, 2);
  return cut.made(cut.width, cut.height, [&](int x, int y) {
    return Place{cut.width - 1 - x, cut.height - 1 - y};
  });
}

void add_step(Random& random, Chain& chain) {
  const auto side = [&] { return random.in(0, 4); };
  const Grid& now = chain.wanted;
  switch (random.in(0, chain.bordered ? 3 : 6)) {
    case 0:
      return chain.flip();
    case 1:
      return chain.upside_down();
    case 2:
    case 3: {
      // Behind a border there is nothing that would be filled.
      const int more = chain.bordered ? 0 : 3;
      return chain.centre(random.in(1, now.width + more), random.in(1, now.height + more));
    }
    case 4:
      return chain.pad(side(), side(), side(), side());
    case 5:
      return chain.below(random.in(1, now.width + 3), random.in(1, now.height + 3));
    default:
      if (chain.filled) return chain.flip();
      return chain.border(side(), side(), side(), side(), static_cast<Border>(random.in(1, 3)));
  }
}

TEST(steps_in_any_order_are_those_done_one_after_the_other) {
  Random random(7);
  int upside_down = 0, bordered = 0;
  for (int i = 0; i < 4000; ++i) {
    Chain chain;
    const Grid picture = chain.wanted = numbered(random.in(1, 9), random.in(1, 9));
    const int steps = random.in(1, 6);
    for (int k = 0; k < steps; ++k) add_step(random, chain);
    const View view = draw_view(chain.spec, picture.width, picture.height, {});
    CHECK_EQ(view.made().width, chain.wanted.width);
    CHECK_EQ(view.made().height, chain.wanted.height);
    if (!(shown(view, picture) == chain.wanted)) fail(__FILE__, __LINE__, "wrong:" + chain.name);
    upside_down += view.quarter == 2;
    bordered += chain.bordered;
  }
  CHECK(upside_down > 500);
  CHECK(bordered > 300);
}

TEST(what_was_cut_is_resized_as_a_crop) {
  GeometrySpec spec;
  spec.add("vertical_flip", {1});
  spec.add("center_crop", {2, 4});
  spec.add("resize_exact", {10, 8});
  const View view = draw_view(spec, 4, 5, {});
  CHECK(view.crop == (Rect{0, 1, 4, 2}));  // rows 3, 2 of the five that were turned over
  CHECK(view.window == (Rect{0, 0, 8, 10}));
  GeometrySpec wide;
  wide.add("center_crop", {7, 4});
  wide.add("resize_exact", {14, 8});
  const View beyond = draw_view(wide, 4, 5, {});
  CHECK(beyond.crop == (Rect{0, -1, 4, 7}));
  CHECK(beyond.seen == (Rect{0, 0, 4, 5}));
}

TEST(a_part_of_a_resized_picture_is_not_resized) {
  GeometrySpec spec;
  spec.add("resize_exact", {8, 8});
  spec.add("center_crop", {4, 4});
  spec.add("resize_exact", {8, 8});
  CHECK_THROWS(kValue, "not resized again", draw_view(spec, 9, 9, {}));
  GeometrySpec bordered;
  bordered.add("pad_border", {1, 1, 1, 1, 2});
  bordered.add("resize_exact", {8, 8});
  CHECK_THROWS(kValue, "not resized again", draw_view(bordered, 9, 9, {}));
  GeometrySpec twice;
  twice.add("pad_border", {1, 1, 1, 1, 2});
  twice.add("pad_border", {1, 1, 1, 1, 2});
  CHECK_THROWS(kValue, "one border", draw_view(twice, 9, 9, {}));
}

TEST(a_step_that_is_there_twice_draws_twice) {
  GeometrySpec spec;
  spec.add("horizontal_flip", {0.5});
  spec.add("horizontal_flip", {0.5});
  std::array<int, 2> flips{};
  for (uint64_t sample = 0; sample < 400; ++sample) {
    ++flips[draw_view(spec, 9, 9, {{1, 2}, sample}).flip ? 1 : 0];
  }
  CHECK(flips[0] > 150);
  CHECK(flips[1] > 150);
}

TEST(boxes_are_judged_where_the_step_stands) {
  GeometrySpec spec;
  spec.add("center_crop", {10, 10});  // of 20 x 20: from 5, 5
  spec.add("judge_boxes", {4, 1});
  spec.add("resize_exact", {40, 40});
  const View view = draw_view(spec, 20, 20, {});
  CHECK(stands(view, {6, 6, 10, 10}));
  CHECK(!stands(view, {6, 6, 9.9, 10}));   // 3.9 wide before it was resized
  CHECK(stands(view, {0, 6, 9, 10}));      // cut off by the crop, 4 are left
  CHECK(!stands(view, {0, 6, 8.9, 10}));
  GeometrySpec whole;
  whole.add("judge_boxes", {1, 1});
  CHECK(!stands(draw_view(whole, 20, 20, {}), {-1, 6, 9, 10}));  // reaches over the border
  GeometrySpec clamped;
  clamped.add("clamp_boxes", {});
  clamped.add("judge_boxes", {1, 1});
  CHECK(stands(draw_view(clamped, 20, 20, {}), {-1, 6, 9, 10}));
  GeometrySpec often;
  for (int i = 0; i < 3; ++i) often.add("judge_boxes", {1, 1});
  CHECK_THROWS(kValue, "at most 2 times", draw_view(often, 20, 20, {}));
}

TEST(boxes_take_another_format) {
  const std::array<std::array<float, 4>, 3> rows{{{1, 2, 5, 10}, {1, 2, 4, 8}, {3, 6, 4, 8}}};
  for (size_t from = 0; from < rows.size(); ++from) {
    for (size_t to = 0; to < rows.size(); ++to) {
      std::array<float, 4> row = rows[from];
      convert_boxes({reinterpret_cast<uint8_t*>(row.data()), sizeof(row)},
                    static_cast<PointFormat>(from), static_cast<PointFormat>(to));
      CHECK(row == rows[to]);
    }
  }
  std::array<uint8_t, 15> bytes{};
  CHECK_THROWS(kFormat, "no whole rows",
               convert_boxes(bytes, PointFormat::kXyxy, PointFormat::kXywh));
}

}  // namespace
}  // namespace fastload::test
