// What is done to pixels, and what a view makes of a sample's objects, without memory.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "../check.h"
#include "../random.h"
#include "everywhere.h"
#include "sample/areas.h"
#include "sample/masks.h"
#include "sample/objects.h"
#include "sample/points.h"
#include "sample/shapes.h"
#include "transform/cut.h"
#include "transform/mosaic.h"
#include "transform/pixels/registry.h"
#include "transform/view_at_size.h"
#include "vision/cutter.h"
#include "vision/numbers.h"

namespace fastload::test {
namespace {

constexpr int kWidth = 40, kHeight = 30;
const SampleRng kRng{{1, 2}, 3, 0};

View made_view() {
  View view;
  view.crop = {4, 3, 30, 20};
  view.resized_width = 24;
  view.resized_height = 18;
  view.window = {-2, 1, 25, 15};
  view.flip = true;
  view.quarter = 1;
  return view;
}

// A picture of that format through a cutter; its plan is made anew, too.
void fail_cutting(const char* what, const CutSpec& spec, const View& view = made_view()) {
  Random random(4);
  const size_t pixel = spec.format.pixel_bytes();
  const std::vector<uint8_t> pixels =
      random.samples(size_t{kWidth} * kHeight * pixel + RowSink::kSlack);
  fail_everywhere(what, [&] {
    const CutPlan plan(spec);
    Resampler resampler;
    PixelStage stage;
    Cutter cutter(resampler, stage);
    const Sides made = view.made();
    Made out(dtype_size(spec.store.dtype) * static_cast<size_t>(spec.format.channels) *
             static_cast<size_t>(made.width) * static_cast<size_t>(made.height));
    cutter.begin(view, plan, {out.data(), 0, 0}, kRng, {kWidth, kHeight, {}});
    const Rect source = cutter.source();
    cutter.rows(
        pixels.data() +
            (static_cast<size_t>(source.y) * kWidth + static_cast<size_t>(source.x)) * pixel,
        kWidth * pixel, 0, source.height);
    cutter.end();
    return out;
  });
}

PixelNode node_of(const PixelOperation& operation) {
  PixelNode node{operation.name, 1.0, {}, {}};
  for (size_t i = 0; i < operation.parameters.size(); ++i) {
    node.numbers.emplace_back("uniform", std::vector<double>{0.5, 1.5});
  }
  return node;
}

TEST(every_operation_on_pixels_without_memory) {
  for (const PixelOperation* const operation : pixel_operations()) {
    fail_everywhere(operation->name,
                    [&] { return Made{PixelSpec({node_of(*operation)}).size() != 0}; });
    CutSpec spec;
    spec.pixels = PixelSpec({node_of(*operation)});
    fail_cutting(operation->name, spec);
    spec.pixels = {};
    spec.source = PixelSpec({node_of(*operation)});
    fail_cutting(operation->name, spec);
  }
}

TEST(groups_of_operations_without_memory) {
  const std::vector<PixelNode> parts{node_of(pixel_operation("grayscale")),
                                     node_of(*pixel_operations()[5]),
                                     node_of(*pixel_operations()[14])};
  for (const char* const name :
       {"all", "choice", "order", "some", "augmix", "mix_and_blend", "blend_in_turn"}) {
    PixelNode node{name, 1.0, {}, parts};
    const std::string_view word = name;
    if (word == "choice") node.numbers = {1.0, 2.0, 3.0};
    if (word == "some") node.numbers = {2.0, 1.0, 1.0, 1.0};
    if (word != "all" && word != "order" && node.numbers.empty()) node.numbers = {0.5};
    CutSpec spec;
    spec.pixels = PixelSpec({node});
    fail_cutting(name, spec);
  }
}

TEST(pictures_are_cut_without_memory) {
  for (const DType dtype : {DType::kUint8, DType::kFloat16, DType::kFloat32, DType::kBfloat16}) {
    CutSpec spec;
    spec.store.dtype = dtype;
    spec.store.channels_last = false;
    if (dtype != DType::kUint8) {
      spec.store.normalize = spec.store.scale = true;
      spec.store.mean = {0.4, 0.5, 0.6};
      spec.store.std = {0.2, 0.3, 0.4};
      spec.store.erase.probability = 1;
      spec.store.erase.area = {0.1, 0.2};
      spec.store.erase.fill = EraseSpec::Fill::kNoise;
    }
    fail_cutting("picture", spec);
    View view = made_view();
    view.filter = Filter::kBicubic;
    view.quarter = 0;
    spec.colour = {9, 8, 7};
    view.seen = {0, 0, 20, 20};
    fail_cutting("picture with fill", spec, view);
  }
  CutSpec ids;
  ids.format = {1, 8, true};
  ids.nearest = true;
  ids.pixels = PixelSpec({node_of(pixel_operation("rotate"))});
  fail_cutting("ids that follow", ids);
  ids.format = {1, 16, true};
  ids.store.dtype = DType::kInt32;
  ids.source = ids.pixels;
  fail_cutting("ids of 16 bits that follow", ids);
  CutSpec deep;
  deep.format = {4, 16, false};
  deep.store.dtype = DType::kFloat32;
  fail_cutting("picture of 16 bits", deep);
}

// A rule by its numbers, its plan and the rows of a picture, all made anew.
TEST(rows_of_vision_rules_without_memory) {
  using Numbers = std::vector<std::pair<std::string, VisionNumber>>;
  const std::vector<std::pair<const char*, Numbers>> rules{
      {"qwen2_vl", {{"patch", {{5}, ""}}, {"first_max_pixels", {{900}, ""}}}},
      {"siglip2", {{"patch", {{3}, ""}}, {"max_patches", {{40}, ""}}}},
      {"idefics3", {{"longest_edge", {{70}, ""}}, {"tile", {{20}, ""}}}},
      {"llava_onevision", {{"tile", {{16}, ""}}, {"pinpoints", {{16, 48, 32, 32}, ""}}}},
      {"internvl", {{"tile", {{19}, ""}}, {"crop_to_patches", {{1}, ""}}}},
      {"gemma3",
       {{"size", {{21, 33}, ""}}, {"pan_and_scan", {{1}, ""}}, {"pan_min_crop", {{8}, ""}}}},
      {"paligemma", {{"size", {{9, 70}, ""}}}},
  };
  Random random(8);
  const std::vector<uint8_t> pixels = random.samples(size_t{kWidth} * kHeight * 3 + RowSink::kSlack);
  for (const auto& rule : rules) {
    for (const DType dtype : {DType::kUint8, DType::kBfloat16, DType::kFloat32}) {
      for (const int pictures : {1, 2}) {
        fail_everywhere(rule.first, [&] {
          const VisionPlan how(vision_rule(rule.first, rule.second), dtype);
          const VisionSizes sizes = plan(how.rule(), kWidth, kHeight, pictures);
          VisionCutter cutter;
          Made out(how.rule().row_bytes(dtype) * static_cast<size_t>(sizes.rows));
          cutter.begin(how, sizes, out.data());
          for (int y = 0; y < kHeight; y += 7) {
            cutter.rows(pixels.data() + size_t{kWidth} * static_cast<size_t>(y) * 3, kWidth * 3, y,
                        std::min(7, kHeight - y));
          }
          cutter.end();
          return out;
        });
      }
    }
  }
}

TEST(views_are_drawn_without_memory) {
  GeometrySpec spec;
  fail_everywhere("steps of a geometry", [&] {
    GeometrySpec made;
    made.add("random_resized_crop", {20, 24, 0.08, 1.0, 0.75, 4.0 / 3});
    made.add("horizontal_flip", {0.5});
    made.add("quarter_turn", {0, 1, 2, 3});
    spec = made;
    return Made(made.steps().size(), 1);
  });
  spec.add("random_iou_crop", {0.3, 1.0, 0.5, 2.0, 10, 0.0, 0.3, 0.5, 0.7, 0.9, 1.0});
  const BoxXyxy boxes[] = {{3, 4, 10, 12}, {20, 5, 33, 28}};
  View view;
  view = draw_view(spec, {kWidth, kHeight, boxes}, kRng);
  CHECK(view.window.width > 0);
  MosaicSpec mosaic;
  mosaic.degrees = 10;
  const PictureSide sides[] = {{40, 30}, {30, 20}, {64, 64}, {17, 90}};
  fail_everywhere("mosaic", [&] {
    const Composition made = compose(mosaic, sides, kRng);
    const auto* const first = reinterpret_cast<const uint8_t*>(made.of_canvas.a.data());
    return Made(first, first + sizeof(made.of_canvas.a));
  });
}

// Objects of an outline each, or an area, or by turns.
Made shapes(PointFormat format) {
  ShapesMaker maker(format);
  for (int i = 0; i < 4; ++i) {
    const double at = i * 4;
    if (format == PointFormat::kAreas || (format == PointFormat::kMixed && i % 2 != 0)) {
      maker.add_area(kHeight, kWidth, std::vector<uint32_t>{300, 100, 50, 90, 660});
    } else {
      maker.begin_outlines(2);
      maker.add_outline(std::vector<double>{at, 2, at + 20, 4, at + 9, 28});
      maker.add_outline(std::vector<double>{at, 1, at + 7, 1, at + 7, 9, at, 9});
    }
  }
  return maker.value();
}

TEST(objects_without_memory) {
  const View view = made_view();
  const auto view_at = [&](int width, int height) {
    return view_at_size(view, kWidth, kHeight, static_cast<uint32_t>(width),
                        static_cast<uint32_t>(height));
  };
  const Motion turn = Motion::affine({0.9, 0.1, 1, -0.1, 0.9, 2});
  const Motions motions{{turn}, {turn}};
  const PointMap map(view, kWidth, kHeight, kWidth, kHeight, motions);
  const std::pair<int, int> drawn{kWidth, kHeight};
  for (const PointFormat format :
       {PointFormat::kPolygons, PointFormat::kAreas, PointFormat::kMixed}) {
    fail_everywhere("value of objects", [&] { return shapes(format); });
    const Made value = shapes(format);
    std::vector<uint32_t> all(4);
    std::iota(all.begin(), all.end(), 0U);
    fail_everywhere("objects of a value", [&] { return Shapes(value, format).of(all); });
    fail_everywhere("masks of objects", [&] {
      const Sides made = view.made();
      Made masks(4 * static_cast<size_t>(made.width) * static_cast<size_t>(made.height));
      MaskDrawer().draw(value, format, all, {kHeight, kWidth, lines_of(view_at), &motions, drawn},
                        {masks.data(), 4, made.height, made.width});
      return masks;
    });
    fail_everywhere("objects moved", [&] {
      if (format == PointFormat::kAreas) return move_areas(value, view_at, motions, drawn);
      if (format == PointFormat::kMixed) return move_mixed(value, map, view_at, motions, drawn);
      Made moved = value;
      map.move(moved, format, false);
      return moved;
    });
  }
  const std::vector<float> numbers{2, 3, 20, 20, 5, 5, 39, 29, 30, 1, 31, 2};
  Made boxes(numbers.size() * sizeof(float));
  std::memcpy(boxes.data(), numbers.data(), boxes.size());
  ObjectsPlan plan;
  plan.clip = plan.clamp = plan.drop = true;
  fail_everywhere("boxes kept", [&] {
    Kept kept;
    keep_objects(boxes, {}, plan, {&view, kWidth, kHeight, kWidth, kHeight, &motions}, kept);
    Made made(kept.boxes.size() * sizeof(float));
    if (!made.empty()) std::memcpy(made.data(), kept.boxes.data(), made.size());
    for (const uint32_t row : kept.rows) made.push_back(static_cast<uint8_t>(row));
    return made;
  });
}

}  // namespace
}  // namespace fastload::test
