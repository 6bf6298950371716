// Rows are resized before columns in any case, as torch does it, where Pillow 13 begins with the
// columns if these lose more: bicubic values are cut off between the two.
#include "transform/geometry/registry.h"

namespace fastload {
namespace {

void apply(std::span<const double>, const SampleRng&, View& view) { view.across_first = true; }

}  // namespace

constinit const GeometryOperation kAcrossFirst{
    .name = "across_first", .parameters = {}, .apply = apply, .still = true};

}  // namespace fastload
