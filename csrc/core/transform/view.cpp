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

bool GeometrySpec::is_still() const {
  return std::ranges::all_of(steps_, [](const Step& step) { return step.operation->still; });
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
  SampleRng own = rng;
  for (const GeometrySpec::Step& step : spec.steps()) {
    const GeometryOperation& operation = *step.operation;
    own.skip = step.skip;
    operation.draw != nullptr ? operation.draw(step.numbers, own, of.boxes, view)
                              : operation.apply(step.numbers, own, view);
  }
  return view;
}

bool shows_fill(const View& view) {
  return view.seen != View::kAll || view.shown != View::kAll ||
         !is_inside(view.window, {0, 0, view.resized_width, view.resized_height});
}

namespace {

// Of each of `count` places from `first` on, which of [begin, begin + size) a border shows there.
std::vector<int> places_along(Border border, int first, int count, int begin, int size) {
  std::vector<int> places(static_cast<size_t>(count));
  // Mirrored without the outermost pixel a period is twice as long but for both of these.
  const int period = border == Border::kReflect ? std::max(2 * size - 2, 1) : 2 * size;
  for (int i = 0; i < count; ++i) {
    int at = first + i - begin;
    if (border == Border::kEdge) {
      at = std::clamp(at, 0, size - 1);
    } else {
      at = (at % period + period) % period;
      if (at >= size) at = border == Border::kReflect ? period - at : period - 1 - at;
    }
    places[static_cast<size_t>(i)] = begin + at;
  }
  return places;
}

// The part of [begin, begin + size) that a border of the window's places is made of.
void cut_to_border(Border border, int& first, int& count, int begin, int size) {
  const auto [least, most] = std::ranges::minmax(places_along(border, first, count, begin, size));
  first = least;
  count = most - least + 1;
}

bool stands(const View& view, const View::Judged& at, BoxXyxy box) {
  if (at.centres && !centre_stays(view, box)) return false;
  const double x = static_cast<double>(at.resized_width) / at.crop.width;
  const double y = static_cast<double>(at.resized_height) / at.crop.height;
  const std::array<double, 4>& area = at.area;  // left, top, right, bottom
  const auto across = [&](double place) {
    return std::clamp((place - at.crop.x) * x, area[0], area[2]) - at.window.x;
  };
  const auto down = [&](double place) {
    return std::clamp((place - at.crop.y) * y, area[1], area[3]) - at.window.y;
  };
  box = {across(box.left), down(box.top), across(box.right), down(box.bottom)};
  const double wide = at.window.width, high = at.window.height;
  if (!is_inside(box, wide, high)) return false;
  const double width = std::clamp(box.right, 0.0, wide) - std::clamp(box.left, 0.0, wide);
  const double height = std::clamp(box.bottom, 0.0, high) - std::clamp(box.top, 0.0, high);
  return width >= at.min_size && height >= at.min_size && width * height >= at.min_area;
}

}  // namespace

void border_places(const View& view, const Rect& part, std::vector<int>& columns,
                   std::vector<int>& rows) {
  const Rect &window = view.window, &of = view.shown;
  columns = places_along(view.border, window.x, window.width, of.x, of.width);
  rows = places_along(view.border, window.y, window.height, of.y, of.height);
  for (int& row : rows) row -= part.y;
  for (int& column : columns) column -= part.x;
  if (!view.flip) return;
  std::ranges::reverse(columns);
  for (int& column : columns) column = part.width - 1 - column;
}

bool is_inside(const BoxXyxy& box, double width, double height) {
  constexpr double kRounded = 0x1p-23;  // of a side
  const double x = width * kRounded, y = height * kRounded;
  return box.left >= -x && box.top >= -y && box.right <= width + x && box.bottom <= height + y;
}

bool stands(const View& view, BoxXyxy box) {
  for (uint8_t i = 0; i < view.judgements; ++i) {
    if (!stands(view, view.judged[i], box)) return false;
  }
  return true;
}

View without_fill(const View& view) {
  View inner = view;
  Rect& window = inner.window;
  if (view.border != Border::kFill) {
    const Rect& of = view.shown;
    cut_to_border(view.border, window.x, window.width, of.x, of.width);
    cut_to_border(view.border, window.y, window.height, of.y, of.height);
    inner.border = Border::kFill;
    inner.shown = View::kAll;
    return inner;
  }
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
