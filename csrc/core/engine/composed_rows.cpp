#include "engine/composed_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>

#include "engine/tile_objects.h"
#include "engine/views.h"
#include "sample/objects.h"
#include "sample/points.h"

namespace fastload {
namespace {

constexpr double kMoreThan = 2;      // pixels that a box is wide and high
constexpr double kAreaLeft = 0.1;    // of its area before
constexpr double kRatioBelow = 100;  // of its sides
constexpr double kTiny = 1e-16;      // beside which nothing is divided by 0

// From pixels of a tile as stored to the canvas: x * scale + shift.
struct ToCanvas {
  explicit ToCanvas(const Tile& tile)
      : scale_x(static_cast<double>(tile.view.resized_width) / tile.stored.width),
        scale_y(static_cast<double>(tile.view.resized_height) / tile.stored.height),
        x(tile.x - tile.view.window.x),
        y(tile.y - tile.view.window.y) {}
  double scale_x, scale_y, x, y;
};

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

// What one tile's objects come to.
class TileObjects {
 public:
  TileObjects(const MosaicSpec& mosaic, const Composition& of, const Tile& tile)
      : size_(mosaic.size), of_(of), tile_(tile), to_canvas_(tile), motion_(of.of_canvas) {}

  // The object's box in the mosaic's picture; nothing where too little is seen of it.
  [[nodiscard]] std::optional<BoxXyxy> seen(BoxXyxy box, bool relative) const {
    const double wide = (relative ? tile_.stored.width : 1) * to_canvas_.scale_x;
    const double high = (relative ? tile_.stored.height : 1) * to_canvas_.scale_y;
    box = {box.left * wide + to_canvas_.x, box.top * high + to_canvas_.y,
           box.right * wide + to_canvas_.x, box.bottom * high + to_canvas_.y};
    if (of_.pictures.size() > 1) {
      box = clipped(box, of_.canvas_width, of_.canvas_height);
      if (!((box.right - box.left) * (box.bottom - box.top) > 0)) return {};
    }
    const BoxXyxy moved = clipped(around_moved(box, motion_), size_, size_);
    if (!stays(box, moved, of_.gain)) return {};
    return moved;
  }

  // A point of the tile in the mosaic's picture.
  void move(float* point, bool relative) const {
    double x = point[0] * (relative ? tile_.stored.width : 1) * to_canvas_.scale_x + to_canvas_.x;
    double y = point[1] * (relative ? tile_.stored.height : 1) * to_canvas_.scale_y + to_canvas_.y;
    motion_.move(x, y);
    point[0] = static_cast<float>(relative ? x / size_ : x);
    point[1] = static_cast<float>(relative ? y / size_ : y);
  }

 private:
  const int size_;
  const Composition& of_;
  const Tile& tile_;
  const ToCanvas to_canvas_;
  const PointMotion motion_;
};

// Calls `each(tile's number, its composition)` for all tiles.
template <class Each>
void for_tiles(const Sample& sample, const Each& each) {
  uint32_t tile = 0;
  for (const Composition& mosaic : sample.together->mosaics) {
    for (size_t i = 0; i < mosaic.pictures.size(); ++i) each(tile++, mosaic);
  }
}

// A value of the sample itself, as it is.
void copy_own(const FieldPlan& field, const FieldPlace& place, const Job& job) {
  if (field.form == FieldPlan::Form::kLabel) {
    const int64_t label = label_of(job.home, job.record, field);
    std::memcpy(place.at(job.position), &label, sizeof(label));
    return;
  }
  Column& column = *job.home.source->columns[field.part];
  if (field.is_ragged()) {
    const std::span<uint8_t> rows = place.rows(job.position, field.width);
    column.copy(job.home.id, rows.data(), rows.size());
  } else {
    column.copy(job.home.id, place.at(job.position), field.width);
  }
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

void move_points(const TileObjects& tile, const FieldPlan& field, std::span<uint8_t> row) {
  const size_t numbers = field.points == PointFormat::kXyv ? 3 : 2;
  std::array<float, 3> point{};
  for (size_t at = 0; at + numbers * sizeof(float) <= row.size(); at += numbers * sizeof(float)) {
    std::memcpy(point.data(), row.data() + at, numbers * sizeof(float));
    const bool unknown = numbers == 3 && point[0] == 0 && point[1] == 0 && point[2] == 0;
    if (unknown) continue;
    tile.move(point.data(), field.relative);
    std::memcpy(row.data() + at, point.data(), numbers * sizeof(float));
  }
}

}  // namespace

ComposedObjects objects_of(const MosaicSpec& mosaic, const Sample& sample,
                           const ObjectsPlan& plan) {
  constexpr size_t kRow = 4 * sizeof(float);
  ComposedObjects objects;
  for_tiles(sample, [&](uint32_t number, const Composition& of) {
    const Tile& tile = sample.tiles[number];
    const TileObjects placed(mosaic, of, tile);
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
  });
  keep_those_of_view(mosaic, sample, plan, objects);
  return objects;
}

std::vector<uint8_t> value_of(const MosaicSpec& mosaic, const Sample& sample,
                              const ComposedObjects& objects, const FieldPlan& field) {
  const size_t width = field.width;
  std::vector<uint8_t> made(objects.rows.size() * width);
  size_t next = 0;
  for_tiles(sample, [&](uint32_t number, const Composition& of) {
    const auto is_other = [&](const ComposedObjects::Row& row) { return row.tile != number; };
    const auto end = std::find_if(objects.rows.begin() + static_cast<ptrdiff_t>(next),
                                  objects.rows.end(), is_other);
    if (end == objects.rows.begin() + static_cast<ptrdiff_t>(next)) return;
    const std::vector<uint8_t> value = value_of(sample.tiles[number].home, field.part);
    const TileObjects placed(mosaic, of, sample.tiles[number]);
    for (; next < objects.rows.size() && objects.rows[next].tile == number; ++next) {
      const size_t row = objects.rows[next].row;
      if ((row + 1) * width > value.size()) {
        throw Error(ErrorKind::kFormat, "A field has fewer rows than the boxes that it is of.");
      }
      const std::span<uint8_t> to = std::span(made).subspan(next * width, width);
      std::memcpy(to.data(), value.data() + row * width, width);
      if (field.form == FieldPlan::Form::kPoints) move_points(placed, field, to);
    }
  });
  return made;
}

void check_mosaic(const SamplePlan& plan) {
  if (!plan.mosaic) return;
  const MosaicSpec& mosaic = *plan.mosaic;
  const auto refuse = [](const std::string& why) { throw Error(ErrorKind::kValue, why); };
  if (mosaic.size < 2 || mosaic.size % 2 != 0 || (mosaic.tiles != 4 && mosaic.tiles != 9)) {
    refuse("A mosaic has an even number of pixels a side, and 4 or 9 tiles. Found: " +
           std::to_string(mosaic.size) + " pixels, " + std::to_string(mosaic.tiles) + " tiles.");
  }
  if (plan.fields.views().size() != 1) refuse("A sample that is a mosaic has one view.");
  if (plan.decoded_side != 0) refuse("Mosaics are not cut from decoded pictures that are kept.");
  for (const FieldsPlan::Stream& stream : plan.fields.streams()) {
    const PixelFormat& format = plan.fields.fields()[stream.fields.front()].picture.format;
    if (stream.fields.size() != 1) refuse("A picture is one field of a mosaic.");
    if (!format.is_rgb8() && !format.ids) {
      refuse("Mosaics are of pictures of 3 channels of 8 bits, and of masks. Found: " +
             format_text(format) + ".");
    }
  }
  const ViewPlan& view = plan.fields.views().front();
  using Form = FieldPlan::Form;
  for (const FieldPlan& field : plan.fields.fields()) {
    if (field.form == Form::kMasks ||
        (field.form == Form::kPoints && field.points >= PointFormat::kPolygons)) {
      refuse(
          "Outlines, areas and masks of objects are not put together to mosaics. Leave them out by "
          "fields=[...], or leave out Mosaic.");
    }
    if ((field.follows || field.form == Form::kPoints) && !is_of_objects(field, view)) {
      refuse("Boxes and points of a mosaic are of the objects whose boxes the view names.");
    }
  }
}

bool is_of_objects(const FieldPlan& field, const ViewPlan& view) {
  return view.objects && field.is_ragged() && (field.follows || field.part == view.objects->part);
}

void copy_composed_values(const SamplePlan& plan, const Job& job, const Sample& sample) {
  const ViewPlan& view = plan.fields.views().front();
  const auto size = static_cast<uint32_t>(plan.mosaic->size);
  std::optional<ComposedObjects> objects;
  if (view.objects) objects = objects_of(*plan.mosaic, sample, *view.objects);
  for (size_t number = 0; number < plan.fields.fields().size(); ++number) {
    const FieldPlan& field = plan.fields.fields()[number];
    if (field.form == FieldPlan::Form::kPicture) continue;
    if (!is_of_objects(field, view)) {
      copy_own(field, job.batch.place(number), job);
      continue;
    }
    const std::vector<uint8_t> value = field.part == view.objects->part
                                           ? objects->boxes
                                           : value_of(*plan.mosaic, sample, *objects, field);
    const std::span<uint8_t> room = job.batch.place(number).rows(job.position, field.width);
    if (room.size() != value.size()) {
      throw Error(ErrorKind::kFormat, "its objects have " + std::to_string(value.size()) +
                                          " bytes, and had " + std::to_string(room.size()) +
                                          " when they were measured: a picture's size is not the "
                                          "one in the index. Pack again");
    }
    std::ranges::copy(value, room.begin());
    if (field.form != FieldPlan::Form::kPoints || field.part == view.objects->part) continue;
    const Together& together = *sample.together;
    const PointMap map(together.view, size, size, size, size, together.motions);
    map.move(room, field.points, field.relative);
    if (field.pairs.empty()) continue;
    map.swap_pairs(room, field.width, field.points == PointFormat::kXyv ? 3 : 2, field.pairs);
  }
}

}  // namespace fastload
