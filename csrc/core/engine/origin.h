// Where a sample comes from, for whoever maps what was found in its picture back.
#pragma once

#include <cstdint>

#include "engine/tiles.h"

namespace fastload {

// Writes a value of form kId or kView. `sample`: the field's view of it, where the form is kView.
void write_origin(const FieldPlan& field, uint64_t id, const Sample& sample, uint8_t* to);

}  // namespace fastload
