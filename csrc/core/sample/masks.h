// Masks of objects: their outlines and areas drawn under a view, a byte a pixel, 0 or 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "sample/areas.h"
#include "sample/outline_runs.h"
#include "sample/shapes.h"
#include "transform/pixels/motion.h"
#include "transform/view.h"

namespace fastload {

// Where masks are drawn: `count` of them one behind the other.
struct MaskRoom {
  uint8_t* at = nullptr;
  uint32_t count = 0;
  int height = 0, width = 0;  // of each
};

// What a window shows of a picture: which of its columns and rows each of the window's is; -1:
// none. The rows that are of the picture follow each other, and never fall.
struct SeenLines {
  std::vector<int> columns, rows;
  int quarter = 0;  // quarter turns of the window

  // Of what comes out.
  [[nodiscard]] Sides made() const {
    const auto width = static_cast<int>(columns.size()), height = static_cast<int>(rows.size());
    return quarter % 2 == 0 ? Sides{width, height} : Sides{height, width};
  }
};

// The same of pictures of a size: areas have their own.
using LinesAt = std::function<void(int width, int height, SeenLines& to)>;
// Of a view, as masks of 8 bits are cut.
LinesAt lines_of(const ViewAt& view_at);

// Of which picture the outlines are, and what it is seen of.
struct MaskView {
  uint32_t height = 0, width = 0;  // of the stored picture, whose pixels the outlines' are
  LinesAt lines_at;
  const Motions* motions = nullptr;
  std::pair<int, int> drawn = {};  // width and height that the source's motions are of
};

// One per thread; keeps its memory between samples.
class MaskDrawer {
 public:
  // Draws these objects of a value: what pycocotools decodes of each, cut as masks of 8 bits are.
  // Beside the view's window, and outside of the picture, masks are 0. Throws Error(kFormat) for
  // bytes that are no such value, for numbers that are none of its objects, and where the room is
  // not for as many objects or smaller than the window; Error(kLimit) as OutlineRuns.
  void draw(std::span<const uint8_t> value, PointFormat format, std::span<const uint32_t> objects,
            const MaskView& seen, const MaskRoom& room);

  // The same one by one: begin() borrows both until the last of them. draw_one() draws into the
  // first mask of the room, and gives the part of the window beside which all is 0: before turns
  // and motions.
  void begin(const Shapes& shapes, const MaskView& seen);
  Rect draw_one(uint32_t number, const MaskRoom& room);

 private:
  void ends_of(const Shapes::Object& object);
  void look(uint32_t height, uint32_t width);
  Rect draw_window(uint8_t* to, int width);
  Rect draw_object(uint8_t* to, int height, int width);
  void mark(uint8_t* to, int stride, int column, uint64_t begin, uint64_t end);
  void move(std::span<const Motion> motions, uint8_t* to, int width);

  const Shapes* shapes_ = nullptr;
  const MaskView* seen_ = nullptr;
  OutlineRuns outlines_;
  RunEnds ends_;
  std::vector<double> points_;
  std::vector<uint32_t> runs_;
  uint32_t height_ = 0, width_ = 0;  // of the object's picture, which the lines are of
  SeenLines lines_;
  int window_width_ = 0, window_height_ = 0;
  std::vector<int> first_row_;  // of the window, that shows this one of the picture, or a later
  int rows_end_ = 0;            // the window's rows up to here show the picture
  int top_ = 0, bottom_ = 0;    // of the object in work: rows of the window with marks
  std::vector<uint8_t> moved_, other_;
};

}  // namespace fastload
