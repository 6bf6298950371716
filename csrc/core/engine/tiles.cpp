#include "engine/tiles.h"

#include "engine/tile_objects.h"
#include "engine/views.h"

namespace fastload {
namespace {

// What the second mosaic of a mix draws from: a view that there is not.
constexpr uint8_t kSecond = 128;

}  // namespace

void TileDrawer::draw(uint32_t view, const Sources::Home& home, const Record& record, Extent stored,
                      Extent drawn, const SampleRng& rng, Sample& to) {
  const ViewPlan& plan = plan_.views()[view];
  if (to.tiles.empty()) to.tiles.resize(1);
  Tile& tile = to.tiles.front();
  tile.home = home;
  tile.record = record;
  tile.stored = stored;
  tile.drawn = drawn;
  const int width = static_cast<int>(drawn.width), height = static_cast<int>(drawn.height);
  const bool points = plan_.has_points();
  if (points) motions_of(plan.source, width, height, rng, pixels_, tile.motions.source);
  if (plan.geometry.needs_boxes()) {
    const std::vector<BoxXyxy> boxes = boxes_of(home, *plan.objects, stored, drawn, tile.motions);
    tile.view = draw_view(plan.geometry, {width, height, boxes}, rng);
  } else {
    tile.view = draw_view(plan.geometry, width, height, rng);
  }
  if (!points) return;
  const Sides made = tile.view.made();
  motions_of(plan.pixels, made.width, made.height, rng, pixels_, tile.motions.cut);
}

void TileDrawer::draw_mosaic(const Sources& sources, uint64_t id, std::span<const int64_t> partners,
                             const SampleRng& rng, const SizeOf& size_of, Sample& to) {
  const auto others = static_cast<size_t>(mosaic_->tiles) - 1;
  to.tiles.clear();
  if (!to.together) to.together.emplace();
  Together& together = *to.together;
  together.mosaics.clear();
  together.weight = 1;
  std::vector<uint64_t> ids;
  // Of the sample or its mate, and of the partners behind it, where there are any.
  const auto gather = [&](uint64_t first, size_t begin) {
    ids.assign(1, first);
    for (size_t i = begin; i < begin + others && i < partners.size(); ++i) {
      if (partners[i] >= 0) ids.push_back(static_cast<uint64_t>(partners[i]));
    }
  };
  gather(id, 0);
  add_mosaic(sources, ids, 0, rng, size_of, to);
  if (partners.size() > others && partners[others] >= 0) {
    gather(static_cast<uint64_t>(partners[others]), others + 1);
    SampleRng second = rng;
    second.view = static_cast<uint8_t>(rng.view + kSecond);
    add_mosaic(sources, ids, mosaic_->tiles, second, size_of, to);
    together.weight = mixup_weight(mosaic_->mixup_alpha, rng);
  }
  const ViewPlan& plan = plan_.views()[rng.view];
  together.view = draw_view(plan.geometry, mosaic_->size, mosaic_->size, rng);
  if (!plan_.has_points()) return;
  motions_of(plan.source, mosaic_->size, mosaic_->size, rng, pixels_, together.motions.source);
  const Sides made = together.view.made();
  motions_of(plan.pixels, made.width, made.height, rng, pixels_, together.motions.cut);
}

// One of the mosaics; `first` is the number of its first tile.
void TileDrawer::add_mosaic(const Sources& sources, std::span<const uint64_t> ids, uint32_t first,
                            const SampleRng& rng, const SizeOf& size_of, Sample& to) {
  const size_t begin = to.tiles.size();
  std::vector<PictureSide> sizes;
  for (const uint64_t id : ids) {
    Tile& tile = to.tiles.emplace_back();
    tile.number = first + static_cast<uint32_t>(to.tiles.size() - 1 - begin);
    tile.home = sources.find(id);
    tile.record = tile.home.source->reader->index().record(tile.home.id);
    tile.stored = tile.drawn = size_of(tile.home, tile.record);
    sizes.push_back({static_cast<int>(tile.stored.width), static_cast<int>(tile.stored.height)});
  }
  const Composition& made = to.together->mosaics.emplace_back(compose(*mosaic_, sizes, rng));
  for (size_t i = 0; i < sizes.size(); ++i) {
    const PlacedPicture& placed = made.pictures[i];
    Tile& tile = to.tiles[begin + i];
    tile.view.crop = {0, 0, sizes[i].width, sizes[i].height};
    tile.view.resized_width = placed.width;
    tile.view.resized_height = placed.height;
    tile.view.window = placed.shown;
    tile.x = placed.x + placed.shown.x;
    tile.y = placed.y + placed.shown.y;
  }
}

}  // namespace fastload
