#include "engine/values.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "engine/origin.h"
#include "engine/tile_objects.h"
#include "engine/views.h"
#include "sample/points.h"

namespace fastload {
namespace {

// Which objects stay, of each view: found once a sample, where a field follows them.
class KeptOfViews {
 public:
  KeptOfViews(const FieldsPlan& plan, std::span<const Sample> samples)
      : plan_(plan), samples_(samples), kept_(plan.has_objects() ? plan.views().size() : 0) {}

  // Nothing where the field has the rows of all.
  const Kept* of(const FieldPlan& field) {
    if (!field.follows) return nullptr;
    std::optional<Kept>& kept = kept_[field.view];
    if (!kept) {
      kept = kept_of(samples_[field.view].tiles.front(), *plan_.views()[field.view].objects);
    }
    return &*kept;
  }

 private:
  const FieldsPlan& plan_;
  std::span<const Sample> samples_;
  std::vector<std::optional<Kept>> kept_;
};

[[noreturn]] void no_room(const char* what, size_t found, size_t room) {
  throw Error(ErrorKind::kFormat,
              std::string("its ") + what + " have " + std::to_string(found) +
                  " bytes under the view, and had " + std::to_string(room) +
                  " when they were measured: the picture's size is not the one in the index. Pack "
                  "again");
}

void copy_shapes(const FieldPlan& field, const Tile& tile, const Kept* kept,
                 std::span<uint8_t> room) {
  const std::vector<uint8_t> shapes = shapes_of(tile, field, kept);
  if (shapes.size() != room.size()) no_room("areas", shapes.size(), room.size());
  std::copy(shapes.begin(), shapes.end(), room.begin());
}

// The rows of the objects that stay, as they are stored.
void copy_rows(const FieldPlan& field, const Sources::Home& home, const Kept& kept,
               std::span<uint8_t> room) {
  const size_t width = field.width;
  if (kept.rows.size() * width != room.size()) {
    no_room("objects", kept.rows.size() * width, room.size());
  }
  const std::vector<uint8_t> value = value_of(home, field.part);
  uint8_t* to = room.data();
  for (const uint32_t row : kept.rows) {
    if ((row + size_t{1}) * width > value.size()) {
      throw Error(ErrorKind::kFormat,
                  home.source->columns[field.part]->path() + " has " +
                      std::to_string(value.size() / width) +
                      " rows of the sample, fewer than there are boxes. Pack again");
    }
    std::memcpy(to, value.data() + row * width, width);
    to += width;
  }
}

void copy_points(const FieldPlan& field, const ObjectsPlan* objects, const Tile& tile,
                 const Kept* kept, std::span<uint8_t> rows) {
  if (kept != nullptr && field.part == objects->part) {
    const size_t bytes = kept->boxes.size() * sizeof(float);
    if (bytes != rows.size()) no_room("boxes", bytes, rows.size());
    if (bytes != 0) std::memcpy(rows.data(), kept->boxes.data(), bytes);
    return;
  }
  if (kept != nullptr) {
    copy_rows(field, tile.home, *kept, rows);
  } else {
    tile.home.source->columns[field.part]->copy(tile.home.id, rows.data(), rows.size());
  }
  const PointMap map(tile.view, tile.stored.width, tile.stored.height, tile.drawn.width,
                     tile.drawn.height, tile.motions);
  map.move(rows, field.points, field.relative);
  if (field.pairs.empty()) return;
  map.swap_pairs(rows, field.width, field.points == PointFormat::kXyv ? 3 : 2, field.pairs);
}

// What has rows, of which each sample has a number of its own.
void copy_ragged(const FieldsPlan& plan, const FieldPlan& field, const FieldPlace& place,
                 const Job& job, std::span<const Sample> samples, KeptOfViews& views) {
  const Kept* const kept = views.of(field);
  if (field.form == FieldPlan::Form::kMasks) {
    return draw_masks(samples[field.view].tiles.front(), field, kept, place.masks_at(job.position));
  }
  const std::span<uint8_t> rows = place.rows(job.position, field.width);
  if (field.form == FieldPlan::Form::kRagged) {
    if (kept != nullptr) return copy_rows(field, job.home, *kept, rows);
    return job.home.source->columns[field.part]->copy(job.home.id, rows.data(), rows.size());
  }
  const Tile& tile = samples[field.view].tiles.front();
  if (field.is_areas() || (field.is_shapes() && kept != nullptr)) {
    return copy_shapes(field, tile, kept, rows);
  }
  const std::optional<ObjectsPlan>& objects = plan.views()[field.view].objects;
  copy_points(field, objects ? &*objects : nullptr, tile, kept, rows);
}

// The values at a field's steps, one after the other.
void copy_steps(const FieldPlan& field, const Job& job, uint8_t* to) {
  for (uint32_t step = 0; step < field.steps.size(); ++step, to += field.width) {
    const uint32_t partner = field.steps[step];
    if (field.form == FieldPlan::Form::kPad) {
      *to = job.batch.is_pad(job.position, partner) ? 1 : 0;
      continue;
    }
    naming_frame(job, partner, step, [&] {
      const Sources::Home& home = job.home_of(partner);
      if (field.form == FieldPlan::Form::kFixed) {
        home.source->columns[field.part]->copy(home.id, to, field.width);
        return;
      }
      const Record record = home.source->reader->index().record(home.id);
      const int64_t label = label_of(home, record, field);
      std::memcpy(to, &label, sizeof(label));
    });
  }
}

}  // namespace

void convert(const FieldPlan& field, const FieldPlace& place, uint32_t position) {
  if (!field.becomes) return;
  convert_boxes(place.rows(position, field.width), field.points, *field.becomes);
}

void copy_values(const FieldsPlan& plan, const Job& job, std::span<const Sample> samples) {
  KeptOfViews kept(plan, samples);
  for (size_t number = 0; number < plan.fields().size(); ++number) {
    const FieldPlan& field = plan.fields()[number];
    const FieldPlace& place = job.batch.place(number);
    if (field.is_vision()) continue;  // VisionRows makes them
    if (!field.steps.empty()) {
      if (field.form != FieldPlan::Form::kPicture) copy_steps(field, job, place.at(job.position));
    } else if (field.form == FieldPlan::Form::kLabel) {
      const int64_t label = label_of(job.home, job.record, field);
      std::memcpy(place.at(job.position), &label, sizeof(label));
    } else if (field.form == FieldPlan::Form::kFixed) {
      job.home.source->columns[field.part]->copy(job.home.id, place.at(job.position), field.width);
    } else if (field.is_origin()) {
      write_origin(field, job.id, samples[field.view], place.at(job.position));
    } else if (field.form != FieldPlan::Form::kPicture) {
      copy_ragged(plan, field, place, job, samples, kept);
      convert(field, place, job.position);
    }
  }
}

}  // namespace fastload
