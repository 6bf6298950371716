#include "engine/composed_shapes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "engine/tile_objects.h"
#include "engine/views.h"
#include "sample/points.h"
#include "sample/shapes.h"
#include "transform/nearest.h"
#include "transform/pixels/warp.h"
#include "transform/turn.h"

namespace fastload {
namespace {

size_t area(int height, int width) {
  return static_cast<size_t>(height) * static_cast<size_t>(width);
}

// Which lines of what `first` shows a window shows through `second`, whose lines are those of a
// picture that has `first` at `begin`.
std::vector<int> through(const std::vector<int>& second, const std::vector<int>& first, int begin) {
  std::vector<int> lines(second.size(), -1);
  for (size_t i = 0; i < lines.size(); ++i) {
    const int at = second[i] - begin;
    if (second[i] >= 0 && at >= 0 && at < static_cast<int>(first.size())) {
      lines[i] = first[static_cast<size_t>(at)];
    }
  }
  return lines;
}

// The part of a picture of that size where the motion takes what is in `part` of its own.
Rect moved_part(const Motion& motion, const Rect& part, int size) {
  const Rect all{0, 0, size, size};
  if (motion.perspective) return all;
  const PointMotion move(motion);
  double left = INFINITY, top = INFINITY, right = -INFINITY, bottom = -INFINITY;
  for (const int corner_x : {part.x, part.x + part.width}) {
    for (const int corner_y : {part.y, part.y + part.height}) {
      double x = corner_x, y = corner_y;
      move.move(x, y);
      left = std::min(left, x), right = std::max(right, x);
      top = std::min(top, y), bottom = std::max(bottom, y);
    }
  }
  constexpr double kMore = 2;  // pixels: Pillow's fixed point is not that far off
  if (!std::isfinite(right - left) || !std::isfinite(bottom - top)) return all;
  const auto line = [&](double at) { return static_cast<int>(std::clamp(at, 0.0, 1.0 * size)); };
  const int x = line(std::floor(left) - kMore), y = line(std::floor(top) - kMore);
  return {x, y, line(std::ceil(right) + kMore) - x, line(std::ceil(bottom) + kMore) - y};
}

// Draws objects of one tile after another as the sample's view shows them.
class ComposedMasks {
 public:
  ComposedMasks(const MosaicSpec& mosaic, const Sample& sample)
      : size_(mosaic.size), together_(*sample.together), cut_{{}, together_.motions.cut} {
    nearest_positions(together_.view, view_.columns, view_.rows);
    view_.quarter = together_.view.quarter;
  }
  // Of a mask.
  [[nodiscard]] int height() const { return view_.made().height; }
  [[nodiscard]] int width() const { return view_.made().width; }

  // Both are borrowed until the last of its objects.
  void begin(const Shapes& shapes, const Tile& tile, const Composition& of) {
    tile_ = &tile;
    of_ = &of;
    at_ = {tile.x - of.visible.x, tile.y - of.visible.y, tile.view.window.width,
           tile.view.window.height};
    shown_ = area(at_.height, at_.width) > 0;
    direct_ = of.motion.a[4] > 0 && nearest_lines(of.motion, of.visible.width, of.visible.height,
                                                  size_, size_, canvas_.columns, canvas_.rows);
    const LinesAt of_tile = lines_of([&tile](int width, int height) {
      return scaled(tile.view, tile.drawn,
                    {static_cast<uint32_t>(width), static_cast<uint32_t>(height)});
    });
    seen_ = {tile.stored.height, tile.stored.width, of_tile, direct_ ? &cut_ : &none_, {}};
    if (direct_) {
      seen_.lines_at = [this, of_tile](int width, int height, SeenLines& to) {
        of_tile(width, height, to);
        to.columns = through(view_.columns, through(canvas_.columns, to.columns, at_.x), 0);
        to.rows = through(view_.rows, through(canvas_.rows, to.rows, at_.y), 0);
        to.quarter = view_.quarter;
      };
    }
    drawer_.begin(shapes, seen_);
  }

  // Into the room's first mask.
  void draw(uint32_t number, const MaskRoom& room) {
    if (height() > room.height || width() > room.width) {
      throw Error(ErrorKind::kFormat, "its masks are larger than there is room for. Pack again");
    }
    if (!shown_) {
      std::memset(room.at, 0, area(room.height, room.width));
    } else if (direct_) {
      drawer_.draw_one(number, room);
    } else {
      draw_moved(number, room);
    }
  }

 private:
  // The tile's part of the mask, moved, then cut.
  void draw_moved(uint32_t number, const MaskRoom& room) {
    std::memset(room.at, 0, area(room.height, room.width));
    tile_mask_.resize(area(at_.height, at_.width));
    const Rect drawn = drawer_.draw_one(number, {tile_mask_.data(), 1, at_.height, at_.width});
    if (drawn.width == 0) return;
    const auto stride = static_cast<size_t>(at_.width);
    const uint8_t* const first =
        tile_mask_.data() + static_cast<size_t>(drawn.y) * stride + static_cast<size_t>(drawn.x);
    const Rect known{at_.x + drawn.x, at_.y + drawn.y, drawn.width, drawn.height};
    const Rect part = moved_part(of_->motion, known, size_);
    if (part.width == 0 || part.height == 0) return;
    moved_.resize(area(part.height, part.width));
    move_nearest_part(of_->motion, known, first, stride, size_, size_, part, moved_.data());
    cut(part, room);
  }

  // The view of the part, its turns and its own motions.
  void cut(const Rect& part, const MaskRoom& room) {
    const auto stride = view_.columns.size();
    window_.assign(stride * view_.rows.size(), 0);
    for (size_t y = 0; y < view_.rows.size(); ++y) {
      const int row = view_.rows[y] - part.y;
      if (view_.rows[y] < 0 || row < 0 || row >= part.height) continue;
      const uint8_t* const from = moved_.data() + area(row, part.width);
      for (size_t x = 0; x < stride; ++x) {
        const int column = view_.columns[x] - part.x;
        if (view_.columns[x] < 0 || column < 0 || column >= part.width) continue;
        window_[y * stride + x] = from[column];
      }
    }
    other_.resize(window_.size());
    if (view_.quarter != 0) {
      const int rows = static_cast<int>(view_.rows.size());
      turn_pixels(window_.data(), static_cast<int>(stride), rows, 1, view_.quarter, other_.data(),
                  static_cast<size_t>(width()));
      window_.swap(other_);
    }
    const uint8_t outside = 0;
    for (const Motion& motion : cut_.cut) {
      move_nearest(motion, false, 1, width(), height(), window_.data(), &outside, other_.data());
      window_.swap(other_);
    }
    const auto columns = static_cast<size_t>(width());
    for (size_t y = 0; y < static_cast<size_t>(height()); ++y) {
      std::memcpy(room.at + y * static_cast<size_t>(room.width), window_.data() + y * columns,
                  columns);
    }
  }

  const int size_;
  const Together& together_;
  const Motions none_, cut_;
  SeenLines view_;  // of the mosaic's picture
  const Tile* tile_ = nullptr;
  const Composition* of_ = nullptr;
  Rect at_;              // where the tile's window lies on the canvas's visible part
  bool shown_ = false;   // whether it has an area
  bool direct_ = false;  // whether lines of the stored picture are lines of the sample
  SeenLines canvas_;     // then: of the canvas's visible part, those of the mosaic's picture
  MaskView seen_;
  MaskDrawer drawer_;
  std::vector<uint8_t> tile_mask_, moved_, window_, other_;
};

}  // namespace

std::vector<uint8_t> shapes_of(const MosaicSpec& mosaic, const Sample& sample,
                               const ComposedObjects& objects, const FieldPlan& field) {
  if (objects.rows.empty()) return {};
  const auto size = static_cast<uint32_t>(mosaic.size);
  const Together& together = *sample.together;
  const PointMap map(together.view, size, size, size, size, together.motions);
  ComposedMasks masks(mosaic, sample);
  std::vector<uint8_t> mask(area(masks.height(), masks.width()));
  std::vector<double> points;
  ShapesMaker made(field.points);
  for_tiles(sample, objects, [&](const Tile& tile, const Composition& of, const auto& rows) {
    const std::vector<uint8_t> value = value_of(tile.home, field.part);
    const Shapes shapes(value, field.points);
    const TileMap placed(mosaic, of, tile);
    masks.begin(shapes, tile, of);
    for (const ComposedObjects::Row& one : rows) {
      if (one.row >= shapes.objects().size()) {
        throw Error(ErrorKind::kFormat, "A field has fewer rows than the boxes that it is of.");
      }
      const Shapes::Object& object = shapes.objects()[one.row];
      if (object.is_area) {
        masks.draw(one.row, {mask.data(), 1, masks.height(), masks.width()});
        made.add_area(static_cast<uint32_t>(masks.height()), static_cast<uint32_t>(masks.width()),
                      runs_of(mask.data(), masks.height(), masks.width()));
        continue;
      }
      made.begin_outlines(object.count);
      for (uint32_t i = 0; i < object.count; ++i) {
        shapes.points(shapes.polygons()[object.first + i], points);
        for (size_t at = 0; at < points.size(); at += 2) {
          placed.move(points[at], points[at + 1]);
          map.move(points[at], points[at + 1]);
        }
        made.add_outline(points);
      }
    }
  });
  return made.value();
}

void draw_masks(const MosaicSpec& mosaic, const Sample& sample, const ComposedObjects& objects,
                const FieldPlan& field, const MaskRoom& room) {
  if (objects.rows.size() != room.count) {
    throw Error(ErrorKind::kFormat, "it has masks of " + std::to_string(objects.rows.size()) +
                                        " objects, and had " + std::to_string(room.count) +
                                        " when they were measured: the picture's size is not the "
                                        "one in the index. Pack again");
  }
  ComposedMasks masks(mosaic, sample);
  MaskRoom next = room;
  for_tiles(sample, objects, [&](const Tile& tile, const Composition& of, const auto& rows) {
    const std::vector<uint8_t> value = value_of(tile.home, field.part);
    const Shapes shapes(value, field.points);
    masks.begin(shapes, tile, of);
    for (const ComposedObjects::Row& one : rows) {
      masks.draw(one.row, next);
      next.at += area(room.height, room.width);
    }
  });
}

}  // namespace fastload
