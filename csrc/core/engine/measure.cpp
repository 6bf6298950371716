#include "engine/measure.h"

#include <new>
#include <string>

#include "engine/views.h"

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
  Extent size{record.width, record.height};
  if (size.width == 0 || size.height == 0) size = first_size(home, record, decoder(), scratch_);
  if (plan_.decoded_side != 0) size = bounded(size, plan_.decoded_side);
  const FieldsPlan& plan = plan_.fields;
  for (size_t number = 0; number < plan.views().size(); ++number) {
    SampleRng own = rng;
    own.view = static_cast<uint8_t>(number);
    const View view = draw_view(plan.views()[number].geometry, static_cast<int>(size.width),
                                static_cast<int>(size.height), own);
    if (plan.has_points()) motions_of(plan.views()[number], view, size, own, drawn_, motions_);
    for (size_t field = 0; field < all.size(); ++field) {
      const FieldPlan& one = plan.fields()[field];
      if (one.view != number) continue;
      if (plan.is_measured(one)) {
        all[field].sizes.back() = {view.window.height, view.window.width};
      } else if (one.is_areas()) {
        const auto areas = areas_of(home, one, view, size, motions_);
        all[field].offsets.back() += static_cast<int64_t>(areas.size());
      }
    }
  }
}

std::vector<Measured> Measurer::measure(std::span<const int64_t> ids,
                                        std::span<const uint32_t> draws, uint64_t epoch) {
  if (!draws.empty() && draws.size() != ids.size()) {
    throw Error(ErrorKind::kValue,
                "A batch of " + std::to_string(ids.size()) +
                    " samples has as many draws. Found: " + std::to_string(draws.size()) + ".");
  }
  const std::vector<FieldPlan>& fields = plan_.fields.fields();
  std::vector<Measured> all(fields.size());
  bool viewed = false;
  for (size_t field = 0; field < fields.size(); ++field) {
    viewed = viewed || plan_.fields.is_measured(fields[field]) || fields[field].is_areas();
    if (fields[field].is_ragged()) all[field].offsets.push_back(0);
    if (!fields[field].is_ragged() || fields[field].is_areas()) continue;
    std::vector<int64_t>& offsets = all[field].offsets;
    for (const int64_t id : ids) {
      offsets.push_back(offsets.back() + rows_of(sources_, fields[field], id));
    }
  }
  if (!viewed) return all;
  const PhiloxKey key = epoch_key(plan_.seed, epoch);
  for (size_t i = 0; i < ids.size(); ++i) {
    for (size_t field = 0; field < fields.size(); ++field) {
      if (plan_.fields.is_measured(fields[field])) all[field].sizes.emplace_back();
      if (fields[field].is_areas()) all[field].offsets.push_back(all[field].offsets.back());
    }
    if (ids[i] < 0) continue;
    const auto id = static_cast<uint64_t>(ids[i]);
    try {
      add_viewed(id, {key, id, draws.empty() ? 0 : draws[i]}, all);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception&) {
      continue;  // producing it says why
    }
  }
  return all;
}

}  // namespace fastload
