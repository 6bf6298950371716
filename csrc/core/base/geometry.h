// Integer rectangles in pixels; x to the right, y down.
#pragma once

namespace fastload {

struct Rect {
  int x = 0;       // left column, inclusive
  int y = 0;       // top row, inclusive
  int width = 0;   // columns
  int height = 0;  // rows
  bool operator==(const Rect&) const = default;
};

}  // namespace fastload
