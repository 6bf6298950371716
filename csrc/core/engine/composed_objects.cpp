#include "engine/composed_objects.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "engine/tile_objects.h"
#include "sample/objects.h"

namespace fastload {
namespace {

constexpr double kMoreThan = 2;      // pixels that a box is wide and high
constexpr double kAreaLeft = 0.1;    // of its area before
constexpr double kRatioBelow = 100;  // of its sides
constexpr double kTiny = 1e-16;      // beside which nothing is divided by 0

BoxXyxy box_of(const float* row, PointFormat format) {
  const double a = row[0], b = row[1], c = row[2], d = row[3];
  if (format == PointFormat::kXyxy) return {a, b, c, d};
  if (format == PointFormat::kXywh) return {a, b, a + c, b + d};
  return {a - c / 2, b - d / 2, a + c / 2, b + d / 2};
}

void write_box(const BoxXyxy& box, PointFormat format, float* row) {
  const double width = box.right - box.left, height = box.bottom - box.top;
  const auto set = [&](double a, double b, double c, double d) {
    const std::array<double, 4> numbers{a, b, c, d};
    std::ranges::transform(numbers, row, [](double n) { return static_cast<float>(n); });
  };
  if (format == PointFormat::kXyxy) return set(box.left, box.top, box.right, box.bottom);
  if (format == PointFormat::kXywh) return set(box.left, box.top, width, height);
  set((box.left + box.right) / 2, (box.top + box.bottom) / 2, width, height);
}

BoxXyxy clipped(const BoxXyxy& box, double width, double height) {
  return {std::clamp(box.left, 0.0, width), std::clamp(box.top, 0.0, height),
          std::clamp(box.right, 0.0, width), std::clamp(box.bottom, 0.0, height)};
}

BoxXyxy around_moved(const BoxXyxy& box, const PointMotion& motion) {
  BoxXyxy around{INFINITY, INFINITY, -INFINITY, -INFINITY};
  for (const auto& [corner_x, corner_y] :
       {std::pair(box.left, box.top), std::pair(box.right, box.top),
        std::pair(box.right, box.bottom), std::pair(box.left, box.bottom)}) {
    double x = corner_x, y = corner_y;
    motion.move(x, y);
    around = {std::min(around.left, x), std::min(around.top, y), std::max(around.right, x),
              std::max(around.bottom, y)};
  }
  return around;
}

bool stays(const BoxXyxy& before, const BoxXyxy& after, double gain) {
  const double w1 = (before.right - before.left) * gain, h1 = (before.bottom - before.top) * gain;
  const double w2 = after.right - after.left, h2 = after.bottom - after.top;
  const double ratio = std::max(w2 / (h2 + kTiny), h2 / (w2 + kTiny));
  return w2 > kMoreThan && h2 > kMoreThan && w2 * h2 / (w1 * h1 + kTiny) > kAreaLeft &&
         ratio < kRatioBelow;
}

// What the view behind the mosaic leaves of its objects, and their boxes there.
void keep_those_of_view(const MosaicSpec& mosaic, const Sample& sample, const ObjectsPlan& plan,
                        ComposedObjects& objects) {
  std::vector<uint8_t> without;
  std::vector<uint8_t> flags;
  for (size_t i = 0; plan.without && i < objects.rows.size(); ++i) {
    const auto [tile, row] = objects.rows[i];
    if (i == 0 || tile != objects.rows[i - 1].tile) {
      flags = value_of(sample.tiles[tile].home, *plan.without);
    }
    if (row >= flags.size()) {
      throw Error(ErrorKind::kFormat, "A field has fewer rows than the boxes that it is of.");
    }
    without.push_back(flags[row]);
  }
  const Together& together = *sample.together;
  const auto size = static_cast<uint32_t>(mosaic.size);
  Kept kept;
  keep_objects(objects.boxes, without, plan,
               {&together.view, size, size, size, size, &together.motions}, kept);
  std::vector<ComposedObjects::Row> rows;
  for (const uint32_t row : kept.rows) rows.push_back(objects.rows[row]);
  objects.rows = std::move(rows);
  const auto* const bytes = reinterpret_cast<const uint8_t*>(kept.boxes.data());
  objects.boxes.assign(bytes, bytes + kept.boxes.size() * sizeof(float));
}

}  // namespace

TileMap::TileMap(const MosaicSpec& mosaic, const Composition& of, const Tile& tile)
    : size_(mosaic.size),
      of_(of),
      tile_(tile),
      scale_x_(static_cast<double>(tile.view.resized_width) / tile.stored.width),
      scale_y_(static_cast<double>(tile.view.resized_height) / tile.stored.height),
      shift_x_(tile.x - tile.view.window.x),
      shift_y_(tile.y - tile.view.window.y),
      motion_(of.of_canvas) {}

std::optional<BoxXyxy> TileMap::seen(BoxXyxy box, bool relative) const {
  const double wide = (relative ? tile_.stored.width : 1) * scale_x_;
  const double high = (relative ? tile_.stored.height : 1) * scale_y_;
  box = {box.left * wide + shift_x_, box.top * high + shift_y_, box.right * wide + shift_x_,
         box.bottom * high + shift_y_};
  if (of_.pictures.size() > 1) {
    box = clipped(box, of_.canvas_width, of_.canvas_height);
    if (!((box.right - box.left) * (box.bottom - box.top) > 0)) return {};
  }
  const BoxXyxy moved = clipped(around_moved(box, motion_), size_, size_);
  if (!stays(box, moved, of_.gain)) return {};
  return moved;
}

void TileMap::move(double& x, double& y) const {
  x = x * scale_x_ + shift_x_;
  y = y * scale_y_ + shift_y_;
  motion_.move(x, y);
}

void TileMap::move(float* point, bool relative) const {
  double x = point[0] * (relative ? tile_.stored.width : 1);
  double y = point[1] * (relative ? tile_.stored.height : 1);
  move(x, y);
  point[0] = static_cast<float>(relative ? x / size_ : x);
  point[1] = static_cast<float>(relative ? y / size_ : y);
}

ComposedObjects objects_of(const MosaicSpec& mosaic, const Sample& sample,
                           const ObjectsPlan& plan) {
  constexpr size_t kRow = 4 * sizeof(float);
  ComposedObjects objects;
  const auto add = [&](uint32_t number, const Composition& of) {
    const Tile& tile = sample.tiles[number];
    const TileMap placed(mosaic, of, tile);
    const std::vector<uint8_t> value = value_of(tile.home, plan.part);
    if (value.size() % kRow != 0) {
      throw Error(ErrorKind::kFormat,
                  std::to_string(value.size()) + " bytes are no boxes of 4 numbers.");
    }
    for (size_t row = 0; row < value.size() / kRow; ++row) {
      std::array<float, 4> numbers{};
      std::memcpy(numbers.data(), value.data() + row * kRow, kRow);
      std::optional<BoxXyxy> box = placed.seen(box_of(numbers.data(), plan.format), plan.relative);
      if (!box) continue;
      if (plan.relative) {
        const double size = mosaic.size;
        box = {box->left / size, box->top / size, box->right / size, box->bottom / size};
      }
      objects.rows.push_back({number, static_cast<uint32_t>(row)});
      write_box(*box, plan.format, numbers.data());
      const auto* const bytes = reinterpret_cast<const uint8_t*>(numbers.data());
      objects.boxes.insert(objects.boxes.end(), bytes, bytes + kRow);
    }
  };
  uint32_t number = 0;
  for (const Composition& of : sample.together->mosaics) {
    for (size_t i = 0; i < of.pictures.size(); ++i) add(number++, of);
  }
  keep_those_of_view(mosaic, sample, plan, objects);
  return objects;
}

}  // namespace fastload
