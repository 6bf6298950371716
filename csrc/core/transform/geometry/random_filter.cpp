// Resized by one of the two filters, as timm's random interpolation: bilinear where uniform_double
// of words 0, 1 of Philox block (kFilter, 0) is below 1/2, else bicubic.
#include "transform/geometry/registry.h"

namespace fastload {
namespace {

void apply(std::span<const double>, const SampleRng& rng, View& view) {
  const PhiloxWords words = rng.words(DrawOp::kFilter, 0);
  view.filter = uniform_double(words[0], words[1]) < 0.5 ? Filter::kBilinear : Filter::kBicubic;
}

}  // namespace

constinit const GeometryOperation kRandomFilter{"random_filter", {}, apply};

}  // namespace fastload
