// The fields of a sample that are no pictures: labels, values, rows, and what moves with a view.
#pragma once

#include "engine/tiles.h"

namespace fastload {

// Copies them into the batch, as the sample's views have them, which are drawn where any field
// depends on one. Throws as Column::copy, PointMap::move() and move_areas(); Error(kFormat) where
// there is not the room that was measured.
void copy_values(const FieldsPlan& plan, const Job& job, std::span<const Sample> samples);

// Gives boxes that are in the batch the format that they have there.
void convert(const FieldPlan& field, const FieldPlace& place, uint32_t position);

}  // namespace fastload
