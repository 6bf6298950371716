// A view from the steps of the geometry, drawn before decoding.
#include "transform/view.h"

#include <string>

#include "base/error.h"
#include "transform/geometry/operation.h"

namespace fastload {

View draw_view(const GeometrySpec& spec, int width, int height, const SampleRng& rng) {
  if (width < 1 || height < 1) {
    throw Error(ErrorKind::kValue,
                "A picture must have at least 1 x 1 pixels. Found: " + std::to_string(width) +
                    " x " + std::to_string(height) + ".");
  }
  View view;
  view.filter = spec.filter;
  view.crop = {0, 0, width, height};
  resize_to(view, width, height);
  for (const GeometrySpec::Step& step : spec.steps()) {
    step.operation->apply(step.numbers, rng, view);
  }
  return view;
}

}  // namespace fastload
