// Values of outlines and areas of objects over arbitrary bytes: parsed, taken apart, moved and
// drawn under a view. A mask has nothing but 0 and 1, and what is taken of a value is a value.
//
// Input: 16 control bytes (format; sides; view), the value.
#include <numeric>

#include "input.h"
#include "paged_input.h"
#include "sample/areas.h"
#include "sample/masks.h"
#include "sample/points.h"
#include "transform/view_at_size.h"

namespace {

using namespace fastload;
using namespace fastload::fuzz;

constexpr size_t kControl = 17;
constexpr size_t kMostMasks = 16;

View view_in(Input& in, int width, int height) {
  View view;
  view.crop.x = in.in(0, width - 1);
  view.crop.y = in.in(0, height - 1);
  view.crop.width = 1 + in.u8() % (width - view.crop.x);
  view.crop.height = 1 + in.u8() % (height - view.crop.y);
  view.resized_width = 1 + in.u8() % 40;
  view.resized_height = 1 + in.u8() % 40;
  view.window = {0, 0, view.resized_width, view.resized_height};
  const uint8_t turned = in.u8();
  view.flip = turned % 2 != 0;
  view.quarter = turned / 2 % 4;
  return view;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kControl) return 0;
  Input in(Bytes(data, size));
  const auto format =
      static_cast<PointFormat>(static_cast<int>(PointFormat::kPolygons) + in.u8() % 3);
  const int width = 1 + in.u8() % 64, height = 1 + in.u8() % 64;
  const View view = view_in(in, width, height);
  const Motions none;
  const auto view_at = [&](int w, int h) {
    return view_at_size(view, static_cast<uint32_t>(width), static_cast<uint32_t>(height),
                        static_cast<uint32_t>(w), static_cast<uint32_t>(h));
  };
  const Bytes rest = in.rest();
  const std::vector<uint8_t> value(rest.begin(), rest.end());
  accepted([&] {
    const Shapes shapes(value, format);
    std::vector<uint32_t> all(std::min(shapes.objects().size(), kMostMasks));
    std::iota(all.begin(), all.end(), 0U);
    const std::vector<uint8_t> some = shapes.of(all);
    FUZZ_CHECK(Shapes(some, format).objects().size() == all.size());
    const Sides made = view.made();
    const auto pixels = static_cast<size_t>(made.width) * static_cast<size_t>(made.height);
    std::vector<uint8_t> masks(all.size() * pixels, 7);
    MaskDrawer().draw(
        some, format, all,
        {static_cast<uint32_t>(height), static_cast<uint32_t>(width), lines_of(view_at), &none},
        {masks.data(), static_cast<uint32_t>(all.size()), made.height, made.width});
    for (const uint8_t pixel : masks) FUZZ_CHECK(pixel <= 1);
    const PointMap map(view, static_cast<uint32_t>(width), static_cast<uint32_t>(height),
                       static_cast<uint32_t>(width), static_cast<uint32_t>(height));
    if (format == PointFormat::kMixed) {
      const std::vector<uint8_t> moved = move_mixed(some, map, view_at);
      FUZZ_CHECK(Shapes(moved, format).objects().size() == all.size());
    } else if (format == PointFormat::kAreas) {
      const std::vector<uint8_t> moved = move_areas(some, view_at);
      FUZZ_CHECK(Shapes(moved, format).objects().size() == all.size());
    } else {
      std::vector<uint8_t> moved = some;
      map.move(moved, format, false);
    }
  });
  return 0;
}
