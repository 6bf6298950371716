#include "engine/tiles.h"

#include "engine/tile_objects.h"
#include "engine/views.h"

namespace fastload {

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
  const Rect& window = tile.view.window;
  motions_of(plan.pixels, window.width, window.height, rng, pixels_, tile.motions.cut);
}

}  // namespace fastload
