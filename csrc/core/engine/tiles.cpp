#include "engine/tiles.h"

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
  tile.view =
      draw_view(plan.geometry, static_cast<int>(drawn.width), static_cast<int>(drawn.height), rng);
  if (plan_.has_points()) motions_of(plan, tile.view, drawn, rng, pixels_, tile.motions);
}

}  // namespace fastload
