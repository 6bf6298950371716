#include "engine/composed_rows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>

#include "engine/composed_objects.h"
#include "engine/composed_shapes.h"
#include "engine/origin.h"
#include "engine/tile_objects.h"
#include "engine/values.h"
#include "engine/views.h"
#include "sample/points.h"

namespace fastload {
namespace {

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

void move_points(const TileMap& tile, const FieldPlan& field, std::span<uint8_t> row) {
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

// The rows of a field of these objects, with points under the view.
std::vector<uint8_t> rows_of(const MosaicSpec& mosaic, const Sample& sample,
                             const ComposedObjects& objects, const FieldPlan& field) {
  const size_t width = field.width;
  std::vector<uint8_t> made;
  for_tiles(sample, objects, [&](const Tile& tile, const Composition& of, const auto& rows) {
    const std::vector<uint8_t> value = value_of(tile.home, field.part);
    const TileMap placed(mosaic, of, tile);
    for (const ComposedObjects::Row& one : rows) {
      const size_t begin = one.row * width;
      if (begin + width > value.size()) {
        throw Error(ErrorKind::kFormat, "A field has fewer rows than the boxes that it is of.");
      }
      made.insert(made.end(), value.begin() + static_cast<ptrdiff_t>(begin),
                  value.begin() + static_cast<ptrdiff_t>(begin + width));
      if (field.form != FieldPlan::Form::kPoints) continue;
      move_points(placed, field, std::span(made).last(width));
    }
  });
  if (field.form != FieldPlan::Form::kPoints) return made;
  const Together& together = *sample.together;
  const auto size = static_cast<uint32_t>(mosaic.size);
  const PointMap map(together.view, size, size, size, size, together.motions);
  map.move(made, field.points, field.relative);
  if (!field.pairs.empty()) {
    map.swap_pairs(made, width, field.points == PointFormat::kXyv ? 3 : 2, field.pairs);
  }
  return made;
}

// The value of a field of these objects under the view.
std::vector<uint8_t> value_of(const MosaicSpec& mosaic, const Sample& sample,
                              const ComposedObjects& objects, const FieldPlan& field,
                              const ObjectsPlan& plan) {
  if (field.part == plan.part) return objects.boxes;
  if (field.is_shapes()) return shapes_of(mosaic, sample, objects, field);
  return rows_of(mosaic, sample, objects, field);
}

}  // namespace

void check_mosaic(const SamplePlan& plan) {
  if (!plan.mosaic) return;
  const MosaicSpec& mosaic = *plan.mosaic;
  const auto refuse = [](const std::string& why) { throw Error(ErrorKind::kValue, why); };
  if (mosaic.size < 2 || mosaic.size % 2 != 0 || (mosaic.tiles != 4 && mosaic.tiles != 9)) {
    refuse("A mosaic has an even number of pixels a side, and 4 or 9 tiles. Found: " +
           std::to_string(mosaic.size) + " pixels, " + std::to_string(mosaic.tiles) + " tiles.");
  }
  if (plan.fields.views().size() != 1) refuse("A sample that is a mosaic has one view.");
  if (plan.fields.has_windows()) refuse("A sample that is a mosaic has no windows of frames.");
  if (plan.decoded_side != 0) refuse("Mosaics are not cut from decoded pictures that are kept.");
  for (const FieldsPlan::Stream& stream : plan.fields.streams()) {
    const PixelFormat& format = plan.fields.fields()[stream.frames.front().field].picture.format;
    if (stream.frames.size() != 1) refuse("A picture is one field of a mosaic.");
    if (!format.is_rgb8() && !format.ids) {
      refuse("Mosaics are of pictures of 3 channels of 8 bits, and of masks. Found: " +
             format_text(format) + ".");
    }
  }
  const ViewPlan& view = plan.fields.views().front();
  if (!view.source.empty()) refuse("Operations on whole pictures stand behind a mosaic's crop.");
  using Form = FieldPlan::Form;
  for (const FieldPlan& field : plan.fields.fields()) {
    const bool moves = field.form == Form::kPoints || field.form == Form::kMasks;
    if ((field.follows || moves) && !is_of_objects(field, view)) {
      refuse(
          "Boxes, points, outlines and masks of a mosaic are of the objects whose boxes the view "
          "names. Leave others out by fields=[...], or name the boxes that they are of by "
          "Fields(rows_of=...).");
    }
  }
}

bool is_of_objects(const FieldPlan& field, const ViewPlan& view) {
  if (!view.objects) return false;
  return field.follows || (field.is_ragged() && field.part == view.objects->part);
}

size_t count_composed(const SamplePlan& plan, const Sample& sample, const FieldPlan& field,
                      const ComposedObjects& objects) {
  if (!field.is_shapes()) return objects.rows.size();
  return shapes_of(*plan.mosaic, sample, objects, field).size();
}

void copy_composed_values(const SamplePlan& plan, const Job& job, const Sample& sample) {
  const ViewPlan& view = plan.fields.views().front();
  std::optional<ComposedObjects> objects;
  if (view.objects) objects = objects_of(*plan.mosaic, sample, *view.objects);
  for (size_t number = 0; number < plan.fields.fields().size(); ++number) {
    const FieldPlan& field = plan.fields.fields()[number];
    const FieldPlace& place = job.batch.place(number);
    if (field.form == FieldPlan::Form::kPicture) continue;
    if (field.is_origin()) {
      write_origin(field, job.id, sample, place.at(job.position));
      continue;
    }
    if (!is_of_objects(field, view)) {
      copy_own(field, place, job);
      continue;
    }
    if (field.form == FieldPlan::Form::kMasks) {
      draw_masks(*plan.mosaic, sample, *objects, field, place.masks_at(job.position));
      continue;
    }
    const std::vector<uint8_t> value =
        value_of(*plan.mosaic, sample, *objects, field, *view.objects);
    const std::span<uint8_t> room = place.rows(job.position, field.width);
    if (room.size() != value.size()) {
      throw Error(ErrorKind::kFormat, "its objects have " + std::to_string(value.size()) +
                                          " bytes, and had " + std::to_string(room.size()) +
                                          " when they were measured: a picture's size is not the "
                                          "one in the index. Pack again");
    }
    std::ranges::copy(value, room.begin());
    convert(field, place, job.position);
  }
}

}  // namespace fastload
