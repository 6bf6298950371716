// The objects of a sample's picture: which of them its view leaves, and what is said of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sources.h"
#include "engine/tiles.h"
#include "sample/masks.h"
#include "sample/objects.h"

namespace fastload {

// A sample's value in one of its source's columns. Throws as Column::copy.
std::vector<uint8_t> value_of(const Sources::Home& home, uint32_t part);

// The boxes that a view is drawn from: in pixels of a picture of size `drawn`, which was `stored`
// on storage and is moved first. Throws as value_of() and boxes_of().
std::vector<BoxXyxy> boxes_of(const Sources::Home& home, const ObjectsPlan& plan, Extent stored,
                              Extent drawn, const Motions& motions);

// The objects that stay, by the plan of the tile's view. Throws as value_of() and keep_objects().
Kept kept_of(const Tile& tile, const ObjectsPlan& plan);

// These objects' outlines and areas (field.is_shapes()) under the view; without `kept` all. Throws
// as value_of(), Shapes, PointMap::move() and move_areas().
std::vector<uint8_t> shapes_of(const Tile& tile, const FieldPlan& field, const Kept* kept);

// How many masks there are of a sample. Throws as value_of() and Shapes.
size_t masks_of(const Tile& tile, const FieldPlan& field, const Kept* kept);
// Draws them. Throws as MaskDrawer::draw().
void draw_masks(const Tile& tile, const FieldPlan& field, const Kept* kept, const MaskRoom& room);

}  // namespace fastload
