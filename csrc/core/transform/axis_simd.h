// The vector variants of fill_axis_scalar; each only for machines that have its instructions.
#pragma once

#include "transform/axis.h"

namespace fastload {

void fill_axis_avx2(const AxisSpec& spec, int multiple, Axis& axis);
void fill_axis_avx512(const AxisSpec& spec, int multiple, Axis& axis);

}  // namespace fastload
