#include "transform/geometry/registry.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"

namespace fastload {
namespace {

#define FASTLOAD_ADDRESS(name) &name,
constexpr const GeometryOperation* kOperations[] = {FASTLOAD_GEOMETRY_OPERATIONS(FASTLOAD_ADDRESS)};
#undef FASTLOAD_ADDRESS

const GeometryOperation& named(std::string_view name) {
  std::string known;
  for (const GeometryOperation* operation : kOperations) {
    if (operation->name == name) return *operation;
    known += (known.empty() ? "" : ", ") + std::string(operation->name);
  }
  throw Error(ErrorKind::kValue, "A step of the geometry must be one of " + known +
                                     ". Found: " + std::string(name) + ".");
}

}  // namespace

std::span<const GeometryOperation* const> geometry_operations() { return kOperations; }

void GeometrySpec::add(std::string_view name, std::vector<double> numbers) {
  const GeometryOperation& operation = named(name);
  const size_t count = operation.parameters.size();
  if (operation.many ? numbers.size() < count : numbers.size() != count) {
    throw Error(ErrorKind::kValue, std::string(name) + " takes " +
                                       (operation.many ? "at least " : "") +
                                       std::to_string(operation.parameters.size()) +
                                       " numbers. Found: " + std::to_string(numbers.size()) + ".");
  }
  constexpr size_t kBlocks = 64;  // that a use may take; the one that takes more is there once
  const auto same = [&](const Step& step) { return step.operation == &operation; };
  const auto uses = static_cast<size_t>(std::ranges::count_if(steps_, same));
  steps_.push_back({&operation, std::move(numbers), static_cast<uint16_t>(uses * kBlocks)});
}

int round_even(double x) { return static_cast<int>(std::nearbyint(x)); }

Rect common(const Rect& first, const Rect& second) {
  const int left = std::max(first.x, second.x), top = std::max(first.y, second.y);
  const int right = std::min(first.x + first.width, second.x + second.width);
  const int bottom = std::min(first.y + first.height, second.y + second.height);
  if (right > left && bottom > top) return {left, top, right - left, bottom - top};
  return {first.x, first.y, 0, 0};
}

namespace {

void clip_area(View& view, const Rect& to) {
  auto& [left, top, right, bottom] = view.area;
  const auto clip = [](double& value, double low, double length) {
    value = std::clamp(value, low, low + length);
  };
  clip(left, to.x, to.width);
  clip(right, to.x, to.width);
  clip(top, to.y, to.height);
  clip(bottom, to.y, to.height);
}

void move_area(View& view, double x, double y) {
  auto& [left, top, right, bottom] = view.area;
  left += x;
  right += x;
  top += y;
  bottom += y;
}

// The crop is another part of the picture, not resized.
void set_crop(View& view, const Rect& rect) {
  move_area(view, view.crop.x - rect.x, view.crop.y - rect.y);
  view.crop = rect;
  view.resized_width = rect.width;
  view.resized_height = rect.height;
  view.window = {0, 0, rect.width, rect.height};
  clip_area(view, view.window);
}

}  // namespace

void settle(View& view) {
  const Rect whole{0, 0, view.resized_width, view.resized_height};
  if (view.window == whole && view.shown == View::kAll) return;
  const bool resized = view.crop.width != whole.width || view.crop.height != whole.height;
  if (resized || view.border != Border::kFill) {
    throw Error(ErrorKind::kValue,
                "A picture that was resized and cut, or that has a border of its own pixels, is "
                "not resized again.");
  }
  const Rect now{view.crop.x + view.window.x, view.crop.y + view.window.y, view.window.width,
                 view.window.height};
  const Rect visible = view.seen == View::kAll ? view.crop : view.seen;
  const Rect shown = view.shown == View::kAll
                         ? visible
                         : common(visible, {view.crop.x + view.shown.x, view.crop.y + view.shown.y,
                                            view.shown.width, view.shown.height});
  const bool all = shown.x <= now.x && shown.y <= now.y &&
                   shown.x + shown.width >= now.x + now.width &&
                   shown.y + shown.height >= now.y + now.height;
  if (view.seen != View::kAll || !all) view.seen = common(shown, now);
  view.shown = View::kAll;
  set_crop(view, now);
}

void crop_to(View& view, Rect rect) {
  settle(view);
  mirror(view, rect, view.crop.width, view.crop.height);
  rect.x += view.crop.x;
  rect.y += view.crop.y;
  if (view.seen != View::kAll) view.seen = common(view.seen, rect);
  set_crop(view, rect);
}

void resize_to(View& view, int width, int height) {
  settle(view);
  const double x = static_cast<double>(width) / view.resized_width;
  const double y = static_cast<double>(height) / view.resized_height;
  auto& [left, top, right, bottom] = view.area;
  left *= x;
  right *= x;
  top *= y;
  bottom *= y;
  view.resized_width = width;
  view.resized_height = height;
  view.window = {0, 0, width, height};
}

void show_window(View& view, Rect rect) {
  mirror(view, rect, view.window.width, view.window.height);
  rect.x += view.window.x;
  rect.y += view.window.y;
  const Rect whole{0, 0, view.resized_width, view.resized_height};
  const bool grows = view.window != whole && common(rect, view.window) != rect;
  if (grows) view.shown = common(view.shown == View::kAll ? whole : view.shown, view.window);
  if (view.shown == View::kAll && common(whole, rect).width == 0) view.shown = common(whole, rect);
  const bool filled = view.border == Border::kFill;  // else it mirrors what is not shown, too
  if (view.shown != View::kAll && filled) view.shown = common(view.shown, rect);
  view.window = rect;
  clip_area(view, rect);
}

void pad_by(View& view, int left, int top, int right, int bottom) {
  if (mirrored_across(view)) std::swap(left, right);
  if (mirrored_down(view)) std::swap(top, bottom);
  const Rect whole{0, 0, view.resized_width, view.resized_height};
  const auto grown = [&](const Rect& rect) {
    return Rect{rect.x - left, rect.y - top, rect.width + left + right, rect.height + top + bottom};
  };
  const bool resized = view.crop.width != whole.width || view.crop.height != whole.height;
  if (view.window == whole && view.shown == View::kAll && !resized) {
    if (view.seen == View::kAll) view.seen = view.crop;
    set_crop(view, grown(view.crop));
    return;
  }
  if (view.shown == View::kAll) view.shown = common(whole, view.window);
  view.window = grown(view.window);
  clip_area(view, view.window);
}

void pad_by(View& view, int left, int top, int right, int bottom, Border border) {
  const Rect whole{0, 0, view.resized_width, view.resized_height};
  const bool has_fill = view.seen != View::kAll || view.shown != View::kAll ||
                        common(whole, view.window) != view.window;
  if (has_fill) {
    throw Error(ErrorKind::kValue,
                "A picture has one border of its own pixels, and no fill before it.");
  }
  if (mirrored_across(view)) std::swap(left, right);
  if (mirrored_down(view)) std::swap(top, bottom);
  view.shown = view.window;
  view.border = border;
  Rect& window = view.window;
  window = {window.x - left, window.y - top, window.width + left + right,
            window.height + top + bottom};
  clip_area(view, window);
}

void clip_to_view(View& view) { clip_area(view, view.window); }

}  // namespace fastload
