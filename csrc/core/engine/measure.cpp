#include "engine/measure.h"

#include <new>
#include <string>

#include "engine/composed_rows.h"
#include "engine/tile_objects.h"
#include "engine/views.h"
#include "engine/vision_rows.h"

namespace fastload {
namespace {

// Rows of a sample's value; 0 where its column is damaged.
int64_t rows_of(const Sources& sources, const FieldPlan& field, int64_t id) {
  if (id < 0) return 0;
  try {
    const auto [source, own] = sources.find(static_cast<uint64_t>(id));
    return static_cast<int64_t>(source->columns[field.part]->length(own) / field.width);
  } catch (const Error&) {
    return 0;
  }
}

}  // namespace

// Rows of a sample's pictures; 0 where that is not known: producing it says why.
int64_t Measurer::vision_rows(const FieldPlan& field, int64_t id) {
  if (id < 0) return 0;
  try {
    const Sources::Home home = sources_.find(static_cast<uint64_t>(id));
    const VisionCount count = count_vision(home, field, decoder(), scratch_);
    return field.form == FieldPlan::Form::kVision ? count.rows : count.pictures;
  } catch (const Error&) {
    return 0;
  }
}

Decoder& Measurer::decoder() {
  if (!decoder_) {
    decoder_.emplace();
    decoder_->configure(plan_.limits, fallback_);
  }
  return *decoder_;
}

// Measures what depends on the sample's views.
void Measurer::add_viewed(uint64_t id, const SampleRng& rng, std::vector<Measured>& all) {
  const Sources::Home home = sources_.find(id);
  const Record record = home.source->reader->index().record(home.id);
  Extent stored{record.width, record.height};
  if (stored.width == 0 || stored.height == 0) {
    stored = first_size(home, record, decoder(), scratch_);
  }
  const Extent drawn = plan_.decoded_side == 0 ? stored : bounded(stored, plan_.decoded_side);
  for (uint32_t view = 0; view < plan_.fields.views().size(); ++view) {
    SampleRng own = rng;
    own.view = static_cast<uint8_t>(view);
    drawer_.draw(view, home, record, stored, drawn, own, sample_);
    add_tile(view, sample_.tiles.front(), all);
  }
}

void Measurer::add_tile(uint32_t view, const Tile& tile, std::vector<Measured>& all) const {
  const FieldsPlan& plan = plan_.fields;
  std::optional<Kept> kept;
  const auto kept_by = [&](const FieldPlan& field) -> const Kept* {
    if (!field.follows) return nullptr;
    if (!kept) kept = kept_of(tile, *plan.views()[view].objects);
    return &*kept;
  };
  for (size_t number = 0; number < all.size(); ++number) {
    const FieldPlan& field = plan.fields()[number];
    if (field.view != view) continue;
    if (plan.is_measured(field)) {
      all[number].sizes.back() = {tile.view.made().height, tile.view.made().width};
    }
    if (!field.is_counted()) continue;
    size_t count = 0;
    if (field.form == FieldPlan::Form::kMasks) {
      count = masks_of(tile, field, kept_by(field));
    } else if (field.is_shapes()) {
      count = shapes_of(tile, field, kept_by(field)).size();
    } else {
      count = kept_by(field)->rows.size();
    }
    std::vector<int64_t>& to = field.is_ragged() ? all[number].offsets : all[number].counts;
    to.back() += static_cast<int64_t>(count);
  }
}

// The same of a sample that is put together of several.
void Measurer::add_mosaic(uint64_t id, std::span<const int64_t> partners, const SampleRng& rng,
                          std::vector<Measured>& all) {
  const auto size_of = [this](const Sources::Home& home, const Record& record) {
    if (record.width != 0 && record.height != 0) return Extent{record.width, record.height};
    return first_size(home, record, decoder(), scratch_);
  };
  drawer_.draw_mosaic(sources_, id, partners, rng, size_of, sample_);
  const ViewPlan& view = plan_.fields.views().front();
  std::optional<ComposedObjects> objects;
  if (view.objects) objects = objects_of(*plan_.mosaic, sample_, *view.objects);
  for (size_t field = 0; field < all.size(); ++field) {
    const FieldPlan& one = plan_.fields.fields()[field];
    if (plan_.fields.is_measured(one)) {
      const Sides made = sample_.together->view.made();
      all[field].sizes.back() = {made.height, made.width};
    }
    if (!is_of_objects(one, view)) continue;
    const size_t count = count_composed(plan_, sample_, one, *objects);
    std::vector<int64_t>& to = one.is_ragged() ? all[field].offsets : all[field].counts;
    to.back() += static_cast<int64_t>(count);
  }
}

std::vector<Measured> Measurer::measure(std::span<const int64_t> ids,
                                        std::span<const uint32_t> draws, uint64_t epoch,
                                        std::span<const int64_t> partners) {
  if (!draws.empty() && draws.size() != ids.size()) {
    throw Error(ErrorKind::kValue,
                "A batch of " + std::to_string(ids.size()) +
                    " samples has as many draws. Found: " + std::to_string(draws.size()) + ".");
  }
  const std::vector<FieldPlan>& fields = plan_.fields.fields();
  std::vector<Measured> all(fields.size());
  bool viewed = false;
  for (size_t field = 0; field < fields.size(); ++field) {
    viewed = viewed || plan_.fields.is_measured(fields[field]) || fields[field].is_counted();
    if (fields[field].is_ragged()) all[field].offsets.push_back(0);
    if (!fields[field].is_ragged() || fields[field].is_counted()) continue;
    std::vector<int64_t>& offsets = all[field].offsets;
    for (const int64_t id : ids) {
      const bool vision = fields[field].is_vision();
      const int64_t rows = vision ? vision_rows(fields[field], id)
                                  : rows_of(sources_, fields[field], id);
      offsets.push_back(offsets.back() + rows);
    }
  }
  if (!viewed) return all;
  const PhiloxKey key = epoch_key(plan_.seed, epoch);
  const size_t each = partners_each(partners.size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    for (size_t field = 0; field < fields.size(); ++field) {
      const bool counted = fields[field].is_counted();
      if (plan_.fields.is_measured(fields[field])) all[field].sizes.emplace_back();
      if (!counted) continue;
      if (fields[field].is_ragged()) {
        all[field].offsets.push_back(all[field].offsets.back());
      } else {
        all[field].counts.push_back(0);
      }
    }
    if (ids[i] < 0) continue;
    const auto id = static_cast<uint64_t>(ids[i]);
    try {
      const SampleRng rng{key, id, draws.empty() ? 0 : draws[i]};
      if (plan_.mosaic) {
        add_mosaic(id, partners.subspan(i * each, each), rng, all);
      } else {
        add_viewed(id, rng, all);
      }
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception&) {
      continue;  // producing it says why
    }
  }
  return all;
}

}  // namespace fastload
