// Boxes, points and outlines under a view, by arithmetic.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sample/field_plan.h"
#include "transform/pixels/motion.h"
#include "transform/view.h"

namespace fastload {

// From pixels of the picture as stored to pixels of the view. In double, in this order:
//   x = x * scale_x          (picture to the one that the view was drawn of; left out where equal)
//   each motion of that whole picture takes the point to where it takes the pixels
//   x = (x - crop.x) * (resized_width / crop.width) - window.x
//   x = window.width - x     (flipped)
// and likewise for y, without the flip; then the quarter turns, and each motion of the view's
// pixels takes the point to where it takes the pixels. Nothing is clipped: what lies outside the
// view stays.
class PointMap {
 public:
  using Pairs = std::vector<std::array<uint16_t, 2>>;

  // `width`, `height`: of the picture whose pixels the points are in. `drawn_width`,
  // `drawn_height`: of the one that `view` was drawn of, which is the same but for the decoded
  // tier.
  PointMap(const View& view, uint32_t width, uint32_t height, uint32_t drawn_width,
           uint32_t drawn_height, const Motions& motions = {});

  // Moves the rows in place; relative ones are in parts of the picture before and of the view
  // after. Points of xyv that are 0 0 0 (COCO's "not labelled") stay so. Corners of a flipped box
  // change places, so that the first stays the left one; a box that is moved becomes the one around
  // its four corners; the order of points stays. Numbers are float32, rounded once. Throws
  // Error(kFormat) for bytes that are no rows of that format.
  void move(std::span<uint8_t> bytes, PointFormat format, bool relative) const;
  // The points of these pairs change places in each row, where the view is a mirror image: what was
  // a left eye looks like a right one. Rows are of `row_bytes`, points of `numbers` float32.
  void swap_pairs(std::span<uint8_t> bytes, size_t row_bytes, size_t numbers,
                  const Pairs& pairs) const;
  // Moves a point that is in pixels.
  void move(double& x, double& y) const;

 private:
  struct Point {
    double x, y;
  };
  [[nodiscard]] Point in_view(double x, double y, bool relative) const;
  [[nodiscard]] Point point(double x, double y, bool relative) const;
  [[nodiscard]] Point extent(float width, float height, bool relative) const;
  void move_box(float* row, PointFormat format, bool relative) const;
  void move_box_around(float* row, PointFormat format, bool relative) const;
  void move_points(std::span<uint8_t> bytes, size_t numbers, bool relative) const;
  void move_polygons(std::span<uint8_t> bytes) const;

  View view_;
  Sides made_;
  double width_, height_;       // of the picture that the view was drawn of
  double scale_x_, scale_y_;    // from the stored picture to it
  double resize_x_, resize_y_;  // from the crop to the resized picture
  bool scaled_;
  bool from_right_, from_below_;     // a box's first corner becomes the right, or the lower one
  bool mirrors_;                     // left and right have changed places
  std::vector<PointMotion> before_;  // motions of the whole picture
  std::vector<PointMotion> motions_;
};

// Rows of boxes in another format, as torchvision's convert_bounding_box_format has them: in
// float32. Throws Error(kFormat) for bytes that are no rows.
void convert_boxes(std::span<uint8_t> bytes, PointFormat from, PointFormat to);

}  // namespace fastload
