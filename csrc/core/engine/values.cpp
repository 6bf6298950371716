#include "engine/values.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "engine/views.h"
#include "sample/points.h"

namespace fastload {
namespace {

void copy_areas(const FieldPlan& field, const Tile& tile, std::span<uint8_t> room) {
  const std::vector<uint8_t> areas =
      areas_of(tile.home, field, tile.view, tile.drawn, tile.motions);
  if (areas.size() != room.size()) {
    throw Error(ErrorKind::kFormat, "its areas have " + std::to_string(areas.size()) +
                                        " bytes under the view, and had " +
                                        std::to_string(room.size()) +
                                        " when they were measured: the picture's size is not the "
                                        "one in the index. Pack again");
  }
  std::copy(areas.begin(), areas.end(), room.begin());
}

void copy_value(const FieldPlan& field, const FieldPlace& place, const Job& job,
                std::span<const Sample> samples) {
  const auto& [source, own] = job.home;
  if (field.form == FieldPlan::Form::kLabel) {
    const int64_t label = label_of(job.home, job.record, field);
    std::memcpy(place.at(job.position), &label, sizeof(label));
  } else if (field.form == FieldPlan::Form::kFixed) {
    source->columns[field.part]->copy(own, place.at(job.position), field.width);
  } else {
    const std::span<uint8_t> rows = place.rows(job.position, field.width);
    if (field.is_areas()) return copy_areas(field, samples[field.view].tiles.front(), rows);
    source->columns[field.part]->copy(own, rows.data(), rows.size());
    if (field.form != FieldPlan::Form::kPoints) return;
    const Tile& tile = samples[field.view].tiles.front();
    const PointMap map(tile.view, tile.stored.width, tile.stored.height, tile.drawn.width,
                       tile.drawn.height, tile.motions);
    map.move(rows, field.points, field.relative);
  }
}

}  // namespace

void copy_values(const FieldsPlan& plan, const Job& job, std::span<const Sample> samples) {
  for (size_t number = 0; number < plan.fields().size(); ++number) {
    const FieldPlan& field = plan.fields()[number];
    if (field.form == FieldPlan::Form::kPicture) continue;
    copy_value(field, job.batch.place(number), job, samples);
  }
}

}  // namespace fastload
