// Outlines, areas and masks of the objects of samples that are put together of several pictures.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/composed_objects.h"
#include "engine/tiles.h"
#include "sample/field_plan.h"
#include "sample/masks.h"

namespace fastload {

// The value that a field of outlines and areas has of these objects under the view behind the
// mosaic. Outlines' points go where boxes' corners go, in double, rounded once, and are not
// clipped; areas become what draw_masks() draws of them. Throws as Column::copy, Shapes and
// MaskDrawer::draw_one().
std::vector<uint8_t> shapes_of(const MosaicSpec& mosaic, const Sample& sample,
                               const ComposedObjects& objects, const FieldPlan& field);

// Draws these objects, whose field has outlines or areas: what a mask of 8 bits of that object
// alone would show, which is 0 outside. So an object in its picture as stored is resized by the
// nearest pixel, put on the canvas, moved by the nearest pixel, and cut by the view; but no more of
// all these pictures is made than has the object on it. Throws likewise, and Error(kFormat) where
// the room is for another number of masks.
void draw_masks(const MosaicSpec& mosaic, const Sample& sample, const ComposedObjects& objects,
                const FieldPlan& field, const MaskRoom& room);

}  // namespace fastload
