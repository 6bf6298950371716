#include "transform/geometry/registry.h"

#include <cmath>
#include <string>

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
  if (numbers.size() != operation.parameters.size()) {
    throw Error(ErrorKind::kValue, std::string(name) + " takes " +
                                       std::to_string(operation.parameters.size()) +
                                       " numbers. Found: " + std::to_string(numbers.size()) + ".");
  }
  steps_.push_back({&operation, std::move(numbers)});
}

int round_even(double x) { return static_cast<int>(std::nearbyint(x)); }

void resize_to(View& view, int width, int height) {
  view.resized_width = width;
  view.resized_height = height;
  view.window = {0, 0, width, height};
}

void show_window(View& view, Rect window) {
  if (view.flip) mirror(window, view.resized_width);
  view.window = window;
}

}  // namespace fastload
