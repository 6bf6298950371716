// Which objects a sample has that is put together of several pictures: those of all tiles that are
// seen enough of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/tiles.h"
#include "sample/objects_plan.h"
#include "transform/mosaic.h"
#include "transform/pixels/motion.h"
#include "transform/view.h"

namespace fastload {

// Where a sample's objects come from, and their boxes.
struct ComposedObjects {
  struct Row {
    uint32_t tile;  // of Sample::tiles, ascending
    uint32_t row;   // of its value
  };
  std::vector<Row> rows;
  std::vector<uint8_t> boxes;  // a value of them in the plan's format, as the view has them
};

// The objects of all tiles that stay, as Ultralytics 8.4 has them: of a box in the resized picture,
// moved to its place, the part on the canvas (where there are several pictures); then, with this
// box as wide and high as the sample's gain makes it, the box around its moved corners, clipped to
// the picture, stays if it is more than 2 pixels wide and high, has more than a tenth of the area,
// and no side is 100 times the other. In double, rounded to float32. Then what keep_objects()
// makes of these boxes by the view behind the mosaic. Throws as Column::copy and keep_objects().
ComposedObjects objects_of(const MosaicSpec& mosaic, const Sample& sample, const ObjectsPlan& plan);

// Where a tile's boxes and points are in the mosaic's picture. Borrows both.
class TileMap {
 public:
  TileMap(const MosaicSpec& mosaic, const Composition& of, const Tile& tile);

  // The object's box; nothing where too little is seen of it.
  [[nodiscard]] std::optional<BoxXyxy> seen(BoxXyxy box, bool relative) const;
  // A point in pixels of the picture as stored.
  void move(double& x, double& y) const;
  // The same in float32; in parts of the pictures' sizes where it is relative.
  void move(float* point, bool relative) const;

 private:
  const int size_;
  const Composition& of_;
  const Tile& tile_;
  double scale_x_, scale_y_, shift_x_, shift_y_;  // to the canvas
  const PointMotion motion_;
};

// Calls `each(tile, its composition, the rows of it that stay)` for the tiles that have any.
template <class Each>
void for_tiles(const Sample& sample, const ComposedObjects& objects, const Each& each) {
  size_t tile = 0, next = 0;
  for (const Composition& mosaic : sample.together->mosaics) {
    for (size_t i = 0; i < mosaic.pictures.size(); ++i, ++tile) {
      const size_t begin = next;
      while (next < objects.rows.size() && objects.rows[next].tile == tile) ++next;
      if (begin == next) continue;
      each(sample.tiles[tile], mosaic, std::span(objects.rows).subspan(begin, next - begin));
    }
  }
}

}  // namespace fastload
