#include "engine/origin.h"

#include <array>
#include <cstring>

namespace fastload {
namespace {

using Numbers = std::array<double, FieldPlan::kViewBytes / sizeof(double)>;

Numbers numbers_of(const Sample& sample) {
  const Tile& tile = sample.tiles.front();
  const View& view = tile.view;
  Numbers numbers{static_cast<double>(tile.stored.width), static_cast<double>(tile.stored.height)};
  // What motions make of a place is not said by a scale and a shift.
  const bool is_moved = !tile.motions.source.empty() || !tile.motions.cut.empty();
  if (sample.together || is_moved) return numbers;
  const double across = static_cast<double>(view.resized_width) / view.crop.width;
  const double down = static_cast<double>(view.resized_height) / view.crop.height;
  numbers[2] = across * tile.drawn.width / tile.stored.width;
  numbers[3] = down * tile.drawn.height / tile.stored.height;
  numbers[4] = -view.crop.x * across - view.window.x;
  numbers[5] = -view.crop.y * down - view.window.y;
  numbers[6] = view.flip ? 1 : 0;
  numbers[7] = view.quarter;
  return numbers;
}

}  // namespace

void write_origin(const FieldPlan& field, uint64_t id, const Sample& sample, uint8_t* to) {
  if (field.form == FieldPlan::Form::kId) {
    const auto number = static_cast<int64_t>(id);
    std::memcpy(to, &number, sizeof(number));
    return;
  }
  const Numbers numbers = numbers_of(sample);
  std::memcpy(to, numbers.data(), sizeof(numbers));
}

}  // namespace fastload
