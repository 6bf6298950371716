#include "transform/view_at_size.h"

#include <algorithm>

namespace fastload {
namespace {

// round(at * to / from), halves up.
int scaled_side(int64_t at, int64_t from, int64_t to) {
  const int64_t up = 2 * at * to + from, down = 2 * from;
  return static_cast<int>(up / down - (up % down < 0 ? 1 : 0));
}

// [begin, begin + length) of `from` pixels, in `to` pixels: at least one; inside, where it begins
// inside.
void scale(int& begin, int& length, uint32_t from, uint32_t to) {
  int first = scaled_side(begin, from, to);
  if (begin < static_cast<int>(from)) first = std::min(first, static_cast<int>(to) - 1);
  const int end = scaled_side(int64_t{begin} + length, from, to);
  begin = first;
  length = std::max(end - first, 1);
}

}  // namespace

View view_at_size(const View& view, uint32_t drawn_width, uint32_t drawn_height, uint32_t width,
                  uint32_t height) {
  if (drawn_width == width && drawn_height == height) return view;
  View found = view;
  scale(found.crop.x, found.crop.width, drawn_width, width);
  scale(found.crop.y, found.crop.height, drawn_height, height);
  if (view.seen == View::kAll) return found;
  const bool none = view.seen.width == 0 || view.seen.height == 0;
  scale(found.seen.x, found.seen.width, drawn_width, width);
  scale(found.seen.y, found.seen.height, drawn_height, height);
  if (none) found.seen.width = found.seen.height = 0;
  return found;
}

}  // namespace fastload
