#include "sample/masks.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "transform/nearest.h"
#include "transform/pixels/warp.h"
#include "transform/turn.h"

namespace fastload {

LinesAt lines_of(const ViewAt& view_at) {
  return [view_at](int width, int height, SeenLines& to) {
    const View view = view_at(width, height);
    nearest_positions(view, to.columns, to.rows);
    to.quarter = view.quarter;
  };
}

// What the window shows of pictures of that size.
void MaskDrawer::look(uint32_t height, uint32_t width) {
  if (height == height_ && width == width_) return;
  seen_->lines_at(static_cast<int>(width), static_cast<int>(height), lines_);
  height_ = height;
  width_ = width;
  const std::vector<int>& rows = lines_.rows;
  window_width_ = static_cast<int>(lines_.columns.size());
  window_height_ = static_cast<int>(rows.size());
  int row = 0;
  while (row < window_height_ && rows[static_cast<size_t>(row)] < 0) ++row;
  rows_end_ = window_height_;
  while (rows_end_ > row && rows[static_cast<size_t>(rows_end_ - 1)] < 0) --rows_end_;
  first_row_.resize(size_t{height} + 1);
  for (uint32_t y = 0; y <= height; ++y) {
    while (row < rows_end_ && rows[static_cast<size_t>(row)] < static_cast<int>(y)) ++row;
    first_row_[y] = row;
  }
}

// The object's pixels, in `ends_`, of a picture of `height_` x `width_`.
void MaskDrawer::ends_of(const Shapes::Object& object) {
  if (object.is_area) {
    shapes_->runs(object, runs_);
    ends_ = ends_of_runs(runs_, object.height, object.width);
    look(object.height, object.width);
  } else {
    outlines_.begin(seen_->height, seen_->width);
    for (uint32_t i = 0; i < object.count; ++i) {
      shapes_->points(shapes_->polygons()[object.first + i], points_);
      outlines_.add(points_);
    }
    outlines_.ends(ends_);
    look(seen_->height, seen_->width);
  }
  if (!seen_->motions->source.empty()) {
    ends_ = moved_before(ends_, height_, width_, seen_->motions->source, seen_->drawn);
  }
}

// Pixels [begin, end) of one of the picture's columns: where in the window's they begin and end.
void MaskDrawer::mark(uint8_t* to, int stride, int column, uint64_t begin, uint64_t end) {
  const int from = first_row_[begin], till = first_row_[end];
  if (from == till) return;
  top_ = std::min(top_, from);
  bottom_ = std::max(bottom_, till);
  to[static_cast<size_t>(from) * static_cast<size_t>(stride) + static_cast<size_t>(column)] ^= 1;
  if (till < window_height_) {
    to[static_cast<size_t>(till) * static_cast<size_t>(stride) + static_cast<size_t>(column)] ^= 1;
  }
}

// DESIGN. Runs go down columns, memory along rows. So only the ends of runs are written column by
// column; a pass along the rows then makes each byte the sum of those above it.
// What is not 0 is within the part that it gives.
Rect MaskDrawer::draw_window(uint8_t* to, int width) {
  const size_t runs = ends_.size() / 2 * 2;  // the last of these is inside
  if (runs == 0 || ends_[runs - 1] == ends_[0]) return {};
  top_ = window_height_;
  bottom_ = 0;
  const uint64_t first = ends_[0] / height_, last = (ends_[runs - 1] - 1) / height_;
  int left = window_width_, right = 0;
  int column_before = -1;
  size_t run = 0;  // the first that ends behind the column's begin
  for (int column = 0; column < window_width_; ++column) {
    const int of = lines_.columns[static_cast<size_t>(column)];
    if (of < 0 || static_cast<uint64_t>(of) < first || static_cast<uint64_t>(of) > last) continue;
    const uint64_t begin = static_cast<uint64_t>(of) * height_, end = begin + height_;
    if (column_before < 0 || of < column_before) {
      run =
          static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
    }
    while (ends_[run] <= begin) ++run;
    column_before = of;
    for (size_t i = run; i < ends_.size(); ++i) {
      const uint64_t from = i == 0 ? begin : std::max(begin, ends_[i - 1]);
      if (from >= end) break;
      if (i % 2 == 0) continue;
      mark(to, width, column, from - begin, std::min(end, ends_[i]) - begin);
    }
    left = std::min(left, column);
    right = column + 1;
  }
  if (left >= right || top_ >= bottom_) return {};
  const auto stride = static_cast<size_t>(width);
  const auto count = static_cast<size_t>(right - left);
  for (int row = top_ + 1; row < std::min(bottom_ + 1, window_height_); ++row) {
    uint8_t* const line = to + static_cast<size_t>(row) * stride + static_cast<size_t>(left);
    const uint8_t* const above = line - stride;
    for (size_t i = 0; i < count; ++i) line[i] ^= above[i];
  }
  return {left, top_, right - left, bottom_ - top_};
}

Rect MaskDrawer::draw_object(uint8_t* to, int height, int width) {
  std::memset(to, 0, static_cast<size_t>(height) * static_cast<size_t>(width));
  Rect drawn;
  if (lines_.quarter == 0) {
    drawn = draw_window(to, width);
    if (drawn == Rect{}) return drawn;
  } else {
    moved_.assign(static_cast<size_t>(window_width_) * static_cast<size_t>(window_height_), 0);
    drawn = draw_window(moved_.data(), window_width_);
    if (drawn == Rect{}) return drawn;
    turn_pixels(moved_.data(), window_width_, window_height_, 1, lines_.quarter, to,
                static_cast<size_t>(width));
  }
  if (!seen_->motions->cut.empty()) move(seen_->motions->cut, to, width);
  return drawn;
}

// Moves the pixels of what comes out, which lie in rows of `width`.
void MaskDrawer::move(std::span<const Motion> motions, uint8_t* to, int width) {
  const Sides made = lines_.made();
  const auto w = static_cast<size_t>(made.width), h = static_cast<size_t>(made.height);
  moved_.resize(w * h);
  other_.resize(w * h);
  for (size_t y = 0; y < h; ++y) {
    std::memcpy(moved_.data() + y * w, to + y * static_cast<size_t>(width), w);
  }
  const uint8_t outside = 0;
  for (const Motion& motion : motions) {
    move_nearest(motion, false, 1, made.width, made.height, moved_.data(), &outside, other_.data());
    moved_.swap(other_);
  }
  for (size_t y = 0; y < h; ++y) {
    std::memcpy(to + y * static_cast<size_t>(width), moved_.data() + y * w, w);
  }
}

void MaskDrawer::draw(std::span<const uint8_t> value, PointFormat format,
                      std::span<const uint32_t> objects, const MaskView& seen,
                      const MaskRoom& room) {
  const Shapes shapes(value, format);
  if (objects.size() != room.count) {
    throw Error(ErrorKind::kFormat,
                "it has masks of " + std::to_string(objects.size()) + " objects, and had " +
                    std::to_string(room.count) +
                    " when they were measured: the picture's size is not the one in the index. "
                    "Pack again");
  }
  begin(shapes, seen);
  MaskRoom next = room;
  for (const uint32_t number : objects) {
    draw_one(number, next);
    next.at += static_cast<size_t>(room.height) * static_cast<size_t>(room.width);
  }
}

void MaskDrawer::begin(const Shapes& shapes, const MaskView& seen) {
  shapes_ = &shapes;
  seen_ = &seen;
  height_ = width_ = 0;
}

Rect MaskDrawer::draw_one(uint32_t number, const MaskRoom& room) {
  const std::vector<Shapes::Object>& objects = shapes_->objects();
  if (number >= objects.size()) {
    throw Error(ErrorKind::kFormat, "it has outlines of " + std::to_string(objects.size()) +
                                        " objects, fewer than boxes. Pack again");
  }
  ends_of(objects[number]);
  const Sides made = lines_.made();
  if (made.height > room.height || made.width > room.width) {
    throw Error(ErrorKind::kFormat, "its masks are larger than there is room for. Pack again");
  }
  return draw_object(room.at, room.height, room.width);
}

}  // namespace fastload
