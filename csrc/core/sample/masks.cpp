#include "sample/masks.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "transform/nearest.h"
#include "transform/pixels/warp.h"

namespace fastload {

// What the window shows of pictures of that size.
void MaskDrawer::look(const MaskView& seen, uint32_t height, uint32_t width) {
  if (height == height_ && width == width_) return;
  view_ = seen.view_at(static_cast<int>(width), static_cast<int>(height));
  nearest_positions(view_, columns_, rows_);
  height_ = height;
  width_ = width;
  // Rows rise from the first to the last that is of the picture.
  const int all = static_cast<int>(rows_.size());
  int row = 0;
  while (row < all && rows_[static_cast<size_t>(row)] < 0) ++row;
  rows_end_ = all;
  while (rows_end_ > row && rows_[static_cast<size_t>(rows_end_ - 1)] < 0) --rows_end_;
  first_row_.resize(size_t{height} + 1);
  for (uint32_t y = 0; y <= height; ++y) {
    while (row < rows_end_ && rows_[static_cast<size_t>(row)] < static_cast<int>(y)) ++row;
    first_row_[y] = row;
  }
}

// The object's pixels, in `ends_`, of a picture of `height_` x `width_`.
void MaskDrawer::ends_of(const Shapes& shapes, const Shapes::Object& object, const MaskView& seen) {
  if (object.is_area) {
    shapes.runs(object, runs_);
    ends_ = ends_of_runs(runs_, object.height, object.width);
    look(seen, object.height, object.width);
  } else {
    outlines_.begin(seen.height, seen.width);
    for (uint32_t i = 0; i < object.count; ++i) {
      shapes.points(shapes.polygons()[object.first + i], points_);
      outlines_.add(points_);
    }
    outlines_.ends(ends_);
    look(seen, seen.height, seen.width);
  }
  if (!seen.motions->source.empty()) {
    ends_ = moved_before(ends_, height_, width_, seen.motions->source, seen.drawn);
  }
}

// Pixels [begin, end) of one of the picture's columns: where in the window's they begin and end.
void MaskDrawer::mark(uint8_t* to, int stride, int column, uint64_t begin, uint64_t end) {
  const int from = first_row_[begin], till = first_row_[end];
  if (from == till) return;
  top_ = std::min(top_, from);
  bottom_ = std::max(bottom_, till);
  to[static_cast<size_t>(from) * static_cast<size_t>(stride) + static_cast<size_t>(column)] ^= 1;
  if (till < static_cast<int>(rows_.size())) {
    to[static_cast<size_t>(till) * static_cast<size_t>(stride) + static_cast<size_t>(column)] ^= 1;
  }
}

// DESIGN. Runs go down columns, memory along rows. So only the ends of runs are written column by
// column; a pass along the rows then makes each byte the sum of those above it.
void MaskDrawer::draw_object(const MaskView& seen, uint8_t* to, int height, int width) {
  std::memset(to, 0, static_cast<size_t>(height) * static_cast<size_t>(width));
  const size_t runs = ends_.size() / 2 * 2;  // the last of these is inside
  if (runs == 0 || ends_[runs - 1] == ends_[0]) return;
  top_ = view_.window.height;
  bottom_ = 0;
  const uint64_t first = ends_[0] / height_, last = (ends_[runs - 1] - 1) / height_;
  int left = view_.window.width, right = 0;
  int column_before = -1;
  size_t run = 0;  // the first that ends behind the column's begin
  for (int column = 0; column < view_.window.width; ++column) {
    const int of = columns_[static_cast<size_t>(column)];
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
  if (left >= right) return;
  const auto stride = static_cast<size_t>(width);
  const auto count = static_cast<size_t>(right - left);
  for (int row = top_ + 1; row < std::min(bottom_ + 1, view_.window.height); ++row) {
    uint8_t* const line = to + static_cast<size_t>(row) * stride + static_cast<size_t>(left);
    const uint8_t* const above = line - stride;
    for (size_t i = 0; i < count; ++i) line[i] ^= above[i];
  }
  if (!seen.motions->cut.empty()) move(seen.motions->cut, to, width);
}

// Moves the window's pixels, which lie in rows of `width`.
void MaskDrawer::move(std::span<const Motion> motions, uint8_t* to, int width) {
  const auto [w, h] =
      std::pair(static_cast<size_t>(view_.window.width), static_cast<size_t>(view_.window.height));
  moved_.resize(w * h);
  other_.resize(w * h);
  for (size_t y = 0; y < h; ++y) {
    std::memcpy(moved_.data() + y * w, to + y * static_cast<size_t>(width), w);
  }
  const uint8_t outside = 0;
  for (const Motion& motion : motions) {
    move_nearest(motion, false, 1, view_.window.width, view_.window.height, moved_.data(), &outside,
                 other_.data());
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
  height_ = width_ = 0;
  uint8_t* to = room.at;
  for (const uint32_t number : objects) {
    if (number >= shapes.objects().size()) {
      throw Error(ErrorKind::kFormat, "it has outlines of " +
                                          std::to_string(shapes.objects().size()) +
                                          " objects, fewer than boxes. Pack again");
    }
    ends_of(shapes, shapes.objects()[number], seen);
    if (view_.window.height > room.height || view_.window.width > room.width) {
      throw Error(ErrorKind::kFormat, "its masks are larger than there is room for. Pack again");
    }
    draw_object(seen, to, room.height, room.width);
    to += static_cast<size_t>(room.height) * static_cast<size_t>(room.width);
  }
}

}  // namespace fastload
