// The AVX-512 variant of fill_axis_scalar; only for machines that have it.
#pragma once

#include "transform/axis.h"

namespace fastload {

void fill_axis_avx512(const AxisSpec& spec, int multiple, Axis& axis);

}  // namespace fastload
