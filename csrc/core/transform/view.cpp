// A view from the steps of the geometry, drawn before decoding.
#include "transform/view.h"

#include <algorithm>
#include <cmath>
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

bool is_inside(const Rect& part, const Rect& all) {
  return part.x >= all.x && part.y >= all.y && part.x + part.width <= all.x + all.width &&
         part.y + part.height <= all.y + all.height;
}

// The resized pixels, [begin, begin + length), that source pixels [first, end) of `in` may have a
// share in, and perhaps a few more: twice the widest filter's support.
void narrow(int& begin, int& length, double first, double end, int in, int out) {
  const double scale = static_cast<double>(in) / out;
  const double reach = 4.0 * std::max(scale, 1.0);
  const double from = std::floor((first - reach) / scale) - 1;
  const double to = std::ceil((end + reach) / scale) + 1;
  const int low = static_cast<int>(std::clamp(from, 0.0, static_cast<double>(out - 1)));
  const int high = static_cast<int>(std::clamp(to, low + 1.0, static_cast<double>(out)));
  cut_to(begin, length, low, high - low);
}

}  // namespace

bool GeometrySpec::needs_boxes() const {
  return std::ranges::any_of(steps_, [](const Step& s) { return s.operation->draw != nullptr; });
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
  view.crop = view.window = {0, 0, of.width, of.height};
  view.resized_width = of.width;
  view.resized_height = of.height;
  for (const GeometrySpec::Step& step : spec.steps()) {
    const GeometryOperation& operation = *step.operation;
    operation.draw != nullptr ? operation.draw(step.numbers, rng, of.boxes, view)
                              : operation.apply(step.numbers, rng, view);
  }
  return view;
}

bool shows_fill(const View& view) {
  return view.seen != View::kAll || view.shown != View::kAll ||
         !is_inside(view.window, {0, 0, view.resized_width, view.resized_height});
}

View without_fill(const View& view) {
  View inner = view;
  Rect& window = inner.window;
  const int width = view.resized_width, height = view.resized_height;
  const Rect bound = view.shown == View::kAll ? Rect{0, 0, width, height} : view.shown;
  cut_to(window.x, window.width, bound.x, bound.width);
  cut_to(window.y, window.height, bound.y, bound.height);
  inner.shown = View::kAll;
  if (view.seen == View::kAll) return inner;
  const double x = view.seen.x - view.crop.x, y = view.seen.y - view.crop.y;
  narrow(window.x, window.width, x, x + view.seen.width, view.crop.width, width);
  narrow(window.y, window.height, y, y + view.seen.height, view.crop.height, height);
  return inner;
}

Rect seen_part(const View& view, Rect part) {
  if (view.seen == View::kAll) return part;
  cut_to(part.x, part.width, view.seen.x, view.seen.width);
  cut_to(part.y, part.height, view.seen.y, view.seen.height);
  return part;
}

Rect decoded_rect(const View& view, bool nearest) {
  const bool plain = view.seen == View::kAll && view.shown == View::kAll;
  if (plain) return nearest ? view.crop : source_rect(view, view.filter);
  const Rect part = source_rect(without_fill(view), view.filter);
  return seen_part(view, nearest ? view.crop : part);
}

bool centre_stays(const View& view, BoxXyxy box) {
  if (!view.centres) return true;
  const auto& [left, top, right, bottom] = view.centred;
  const double x = 0.5 * (std::clamp(box.left, left, right) + std::clamp(box.right, left, right));
  const double y = 0.5 * (std::clamp(box.top, top, bottom) + std::clamp(box.bottom, top, bottom));
  const Rect& rect = *view.centres;
  return rect.x < x && x < rect.x + rect.width && rect.y < y && y < rect.y + rect.height;
}

}  // namespace fastload
