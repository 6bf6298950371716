// Rows of objects of samples that are put together of several pictures: those of all tiles, of the
// objects that are seen enough of.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/tiles.h"
#include "sample/objects_plan.h"

namespace fastload {

// Where a sample's objects come from, and their boxes.
struct ComposedObjects {
  struct Row {
    uint32_t tile;  // of Sample::tiles
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

// The value that a field of these objects has in the mosaic's picture: points are moved there, all
// other rows are as they are. Throws as Column::copy.
std::vector<uint8_t> value_of(const MosaicSpec& mosaic, const Sample& sample,
                              const ComposedObjects& objects, const FieldPlan& field);

// Throws Error(kValue) for a plan whose samples cannot be put together.
void check_mosaic(const SamplePlan& plan);

// Whether a field's rows are those of the view's objects.
bool is_of_objects(const FieldPlan& field, const ViewPlan& view);

// Copies the fields that are no pictures of a sample that is put together into the batch: rows of
// objects are of all tiles, everything else is the sample's own. Throws as objects_of(), and
// Error(kFormat) where there is not the room that was measured.
void copy_composed_values(const SamplePlan& plan, const Job& job, const Sample& sample);

}  // namespace fastload
