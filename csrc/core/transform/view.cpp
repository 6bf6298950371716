// A view from the steps of the geometry, drawn before decoding.
#include "transform/view.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "transform/geometry/operation.h"

namespace fastload {

namespace {

// [begin, begin + length) cut to [bound, bound + size): at least one pixel of that.
void cut_to(int& begin, int& length, int bound, int size) {
  const int last = bound + std::max(size, 1) - 1;
  const int first = std::clamp(begin, bound, last);
  length = std::clamp(begin + length, first + 1, last + 1) - first;
  begin = first;
}

}  // namespace

bool GeometrySpec::needs_boxes() const {
  return std::ranges::any_of(steps_, [](const Step& s) { return s.operation->needs_boxes; });
}

View draw_view(const GeometrySpec& spec, int width, int height, const SampleRng& rng) {
  return draw_view(spec, DrawnOf{width, height}, rng);
}

View draw_view(const GeometrySpec& spec, const DrawnOf& of, const SampleRng& rng) {
  if (of.width < 1 || of.height < 1) {
    throw Error(ErrorKind::kValue,
                "A picture must have at least 1 x 1 pixels. Found: " + std::to_string(of.width) +
                    " x " + std::to_string(of.height) + ".");
  }
  View view;
  view.filter = spec.filter;
  view.crop = {0, 0, of.width, of.height};
  resize_to(view, of.width, of.height);
  for (const GeometrySpec::Step& step : spec.steps()) {
    step.operation->apply(step.numbers, rng, view);
  }
  return view;
}

Rect decoded_rect(const View& view, bool nearest) {
  Rect part = nearest ? view.crop : source_rect(view, view.filter);
  if (view.seen == View::kAll) return part;
  cut_to(part.x, part.width, view.seen.x, view.seen.width);
  cut_to(part.y, part.height, view.seen.y, view.seen.height);
  return part;
}

}  // namespace fastload
