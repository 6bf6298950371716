// Values of samples that are put together of several pictures: rows of objects are those of all
// tiles.
#pragma once

#include <cstddef>

#include "engine/composed_objects.h"
#include "engine/tiles.h"

namespace fastload {

// Throws Error(kValue) for a plan whose samples cannot be put together.
void check_mosaic(const SamplePlan& plan);

// Whether a field's rows are those of the view's objects.
bool is_of_objects(const FieldPlan& field, const ViewPlan& view);

// How many rows, bytes of outlines and areas, or masks such a field has of these objects. Throws as
// Column::copy and shapes_of().
size_t count_composed(const SamplePlan& plan, const Sample& sample, const FieldPlan& field,
                      const ComposedObjects& objects);

// Copies the fields that are no pictures of a sample that is put together into the batch: rows of
// objects are of all tiles, everything else is the sample's own. Throws as objects_of(),
// shapes_of() and draw_masks(), and Error(kFormat) where there is not the room that was measured.
void copy_composed_values(const SamplePlan& plan, const Job& job, const Sample& sample);

}  // namespace fastload
