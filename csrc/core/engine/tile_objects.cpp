#include "engine/tile_objects.h"

#include <numeric>
#include <utility>

#include "engine/views.h"
#include "sample/areas.h"
#include "sample/points.h"
#include "sample/shapes.h"

namespace fastload {
namespace {

std::pair<int, int> pair_of(Extent size) {
  return {static_cast<int>(size.width), static_cast<int>(size.height)};
}

// The tile's view of pictures of another size.
ViewAt view_at(const Tile& tile) {
  return [&tile](int width, int height) {
    return scaled(tile.view, tile.drawn,
                  {static_cast<uint32_t>(width), static_cast<uint32_t>(height)});
  };
}

Placed placed(const View& view, Extent stored, Extent drawn, const Motions& motions) {
  return {&view, stored.width, stored.height, drawn.width, drawn.height, &motions};
}

}  // namespace

std::vector<uint8_t> value_of(const Sources::Home& home, uint32_t part) {
  Column& column = *home.source->columns[part];
  std::vector<uint8_t> value(column.length(home.id));
  column.copy(home.id, value.data(), value.size());
  return value;
}

std::vector<BoxXyxy> boxes_of(const Sources::Home& home, const ObjectsPlan& plan, Extent stored,
                              Extent drawn, const Motions& motions) {
  const View none;  // its boxes are those of the picture
  return boxes_of(value_of(home, plan.part), plan, placed(none, stored, drawn, motions));
}

Kept kept_of(const Tile& tile, const ObjectsPlan& plan) {
  std::vector<uint8_t> without;
  if (plan.without) without = value_of(tile.home, *plan.without);
  Kept kept;
  keep_objects(value_of(tile.home, plan.part), without, plan,
               placed(tile.view, tile.stored, tile.drawn, tile.motions), kept);
  return kept;
}

std::vector<uint8_t> shapes_of(const Tile& tile, const FieldPlan& field, const Kept* kept) {
  std::vector<uint8_t> value = value_of(tile.home, field.part);
  if (kept != nullptr) value = Shapes(value, field.points).of(kept->rows);
  if (field.points == PointFormat::kAreas) {
    return move_areas(value, view_at(tile), tile.motions, pair_of(tile.drawn));
  }
  const PointMap map(tile.view, tile.stored.width, tile.stored.height, tile.drawn.width,
                     tile.drawn.height, tile.motions);
  if (field.points == PointFormat::kMixed) {
    return move_mixed(value, map, view_at(tile), tile.motions, pair_of(tile.drawn));
  }
  map.move(value, field.points, false);
  return value;
}

size_t masks_of(const Tile& tile, const FieldPlan& field, const Kept* kept) {
  if (kept != nullptr) return kept->rows.size();
  return Shapes(value_of(tile.home, field.part), field.points).objects().size();
}

void draw_masks(const Tile& tile, const FieldPlan& field, const Kept* kept, const MaskRoom& room) {
  const std::vector<uint8_t> value = value_of(tile.home, field.part);
  std::vector<uint32_t> all;
  if (kept == nullptr) {
    all.resize(Shapes(value, field.points).objects().size());
    std::iota(all.begin(), all.end(), 0U);
  }
  MaskDrawer().draw(
      value, field.points, kept != nullptr ? kept->rows : all,
      {tile.stored.height, tile.stored.width, lines_of(view_at(tile)), &tile.motions, pair_of(tile.drawn)},
      room);
}

}  // namespace fastload
