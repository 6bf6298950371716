#include "sample/objects.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/error.h"

namespace fastload {
namespace {

constexpr size_t kRowBytes = 4 * sizeof(float);

BoxXyxy corners_of(const uint8_t* from, PointFormat format) {
  std::array<float, 4> row;
  std::memcpy(row.data(), from, sizeof(row));
  BoxXyxy box{row[0], row[1], row[2], row[3]};
  if (format == PointFormat::kCxcywh) {
    box.left -= box.right / 2;
    box.top -= box.bottom / 2;
  }
  if (format != PointFormat::kXyxy) {
    box.right += box.left;
    box.bottom += box.top;
  }
  return box;
}

BoxXyxy clipped(const BoxXyxy& box, double left, double top, double right, double bottom) {
  return {std::clamp(box.left, left, right), std::clamp(box.top, top, bottom),
          std::clamp(box.right, left, right), std::clamp(box.bottom, top, bottom)};
}

// The box around the moved corners.
BoxXyxy moved(const BoxXyxy& box, const PointMotion& motion) {
  std::array<double, 4> x{box.left, box.right, box.right, box.left};
  std::array<double, 4> y{box.top, box.top, box.bottom, box.bottom};
  for (size_t i = 0; i < x.size(); ++i) motion.move(x[i], y[i]);
  const auto [left, right] = std::minmax_element(x.begin(), x.end());
  const auto [top, bottom] = std::minmax_element(y.begin(), y.end());
  return {*left, *top, *right, *bottom};
}

// A motion of boxes. torchvision's v2 clips them behind it, but for flips.
struct BoxMotion {
  PointMotion motion;
  bool clips;
};

std::vector<BoxMotion> box_motions(const std::vector<Motion>& motions, int width, int height) {
  std::vector<BoxMotion> found;
  for (const Motion& motion : motions) {
    found.push_back({PointMotion(motion), !motion.is_flip(width, height)});
  }
  return found;
}

// Boxes under one view.
class BoxMap {
 public:
  BoxMap(const ObjectsPlan& plan, const Placed& placed)
      : plan_(plan),
        view_(*placed.view),
        drawn_width_(placed.drawn_width),
        drawn_height_(placed.drawn_height),
        scale_x_(plan.relative ? drawn_width_ : drawn_width_ / placed.width),
        scale_y_(plan.relative ? drawn_height_ : drawn_height_ / placed.height),
        made_(view_.made()),
        before_(box_motions(placed.motions->source, static_cast<int>(placed.drawn_width),
                            static_cast<int>(placed.drawn_height))),
        behind_(box_motions(placed.motions->cut, made_.width, made_.height)) {}

  // In pixels of the picture that the view was drawn of.
  [[nodiscard]] BoxXyxy in_picture(BoxXyxy box) const {
    box = {box.left * scale_x_, box.top * scale_y_, box.right * scale_x_, box.bottom * scale_y_};
    for (const auto& [motion, clips] : before_) {
      box = moved(box, motion);
      if (plan_.clip && clips) box = clipped(box, 0, 0, drawn_width_, drawn_height_);
    }
    return box;
  }

  // From there to pixels of what comes out.
  [[nodiscard]] BoxXyxy in_output(BoxXyxy box) const {
    if (!centre_stays(view_, box)) return {};
    const double resize_x = static_cast<double>(view_.resized_width) / view_.crop.width;
    const double resize_y = static_cast<double>(view_.resized_height) / view_.crop.height;
    box = {(box.left - view_.crop.x) * resize_x, (box.top - view_.crop.y) * resize_y,
           (box.right - view_.crop.x) * resize_x, (box.bottom - view_.crop.y) * resize_y};
    const auto& [left, top, right, bottom] = view_.area;
    if (plan_.clip) box = clipped(box, left, top, right, bottom);
    const Rect& window = view_.window;
    box = {box.left - window.x, box.top - window.y, box.right - window.x, box.bottom - window.y};
    if (view_.flip) {
      box = {window.width - box.right, box.top, window.width - box.left, box.bottom};
    }
    if (view_.quarter != 0) box = turned(box);
    for (const auto& [motion, clips] : behind_) {
      box = moved(box, motion);
      if (plan_.clip && clips) box = clamped(box);
    }
    return plan_.clamp ? clamped(box) : box;
  }

  // To what comes out.
  [[nodiscard]] BoxXyxy clamped(const BoxXyxy& box) const {
    return clipped(box, 0, 0, made_.width, made_.height);
  }

  // But for what rounding makes of boxes that end at the border.
  [[nodiscard]] bool inside(const BoxXyxy& box) const {
    return is_inside(box, made_.width, made_.height);
  }

  [[nodiscard]] bool stays(const BoxXyxy& box) const {
    const double width = box.right - box.left, height = box.bottom - box.top;
    const bool large = plan_.min_size > 0 ? width >= plan_.min_size && height >= plan_.min_size
                                          : width > 0 && height > 0;
    return large && width * height >= plan_.min_area;
  }

  // As the field has boxes.
  [[nodiscard]] std::array<float, 4> row(BoxXyxy box) const {
    if (plan_.relative) {
      box = {box.left / made_.width, box.top / made_.height, box.right / made_.width,
             box.bottom / made_.height};
    }
    const double width = box.right - box.left, height = box.bottom - box.top;
    std::array<double, 4> row{box.left, box.top, box.right, box.bottom};
    if (plan_.format == PointFormat::kXywh) row = {box.left, box.top, width, height};
    if (plan_.format == PointFormat::kCxcywh) {
      row = {box.left + width / 2, box.top + height / 2, width, height};
    }
    return {static_cast<float>(row[0]), static_cast<float>(row[1]), static_cast<float>(row[2]),
            static_cast<float>(row[3])};
  }

 private:
  // A box of the mirrored window.
  [[nodiscard]] BoxXyxy turned(const BoxXyxy& box) const {
    double x = box.left, y = box.top, other_x = box.right, other_y = box.bottom;
    view_.turn(x, y);
    view_.turn(other_x, other_y);
    return {std::min(x, other_x), std::min(y, other_y), std::max(x, other_x), std::max(y, other_y)};
  }

  const ObjectsPlan& plan_;
  const View& view_;
  double drawn_width_, drawn_height_;
  double scale_x_, scale_y_;  // to pixels of the picture that the view was drawn of
  Sides made_;
  std::vector<BoxMotion> before_, behind_;
};

size_t rows_of(std::span<const uint8_t> value) {
  if (value.size() % kRowBytes == 0) return value.size() / kRowBytes;
  throw Error(ErrorKind::kFormat, "the value of " + std::to_string(value.size()) +
                                      " bytes has no whole boxes. Pack again.");
}

}  // namespace

std::vector<BoxXyxy> boxes_of(std::span<const uint8_t> value, const ObjectsPlan& plan,
                              const Placed& placed) {
  const BoxMap map(plan, placed);
  std::vector<BoxXyxy> boxes(rows_of(value));
  for (size_t i = 0; i < boxes.size(); ++i) {
    boxes[i] = map.in_picture(corners_of(value.data() + i * kRowBytes, plan.format));
  }
  return boxes;
}

void keep_objects(std::span<const uint8_t> value, std::span<const uint8_t> without,
                  const ObjectsPlan& plan, const Placed& placed, Kept& to) {
  const size_t rows = rows_of(value);
  if (!without.empty() && without.size() != rows) {
    throw Error(ErrorKind::kFormat, "it has " + std::to_string(rows) + " boxes, and " +
                                        std::to_string(without.size()) +
                                        " rows that say which to drop. Pack again");
  }
  const BoxMap map(plan, placed);
  to.rows.clear();
  to.boxes.clear();
  for (size_t i = 0; i < rows; ++i) {
    if (!without.empty() && without[i] != 0) continue;
    BoxXyxy box = map.in_picture(corners_of(value.data() + i * kRowBytes, plan.format));
    if (!stands(*placed.view, box)) continue;
    box = map.in_output(box);
    if (plan.drop && plan.inside) {
      if (!map.inside(box)) continue;
      box = map.clamped(box);
    }
    if (plan.drop && !map.stays(box)) continue;
    to.rows.push_back(static_cast<uint32_t>(i));
    const std::array<float, 4> row = map.row(box);
    to.boxes.insert(to.boxes.end(), row.begin(), row.end());
  }
}

}  // namespace fastload
