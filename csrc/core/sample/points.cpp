#include "sample/points.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/error.h"

namespace fastload {
namespace {

// Numbers lie at any address.
template <size_t N>
std::array<float, N> load(const uint8_t* from) {
  std::array<float, N> row;
  std::memcpy(row.data(), from, sizeof(row));
  return row;
}

uint32_t word(std::span<const uint8_t> bytes, size_t number) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + 4 * number, sizeof(value));
  return value;
}

[[noreturn]] void no_rows(const char* what, size_t size) {
  throw Error(ErrorKind::kFormat, std::string("the value of ") + std::to_string(size) +
                                      " bytes has no " + what + ". Pack again.");
}

// Whether the motions together turn a picture over: the sign of their matrices' determinants.
bool turns_over(const std::vector<Motion>& motions) {
  bool over = false;
  for (const Motion& motion : motions) {
    const auto& a = motion.a;
    const double determinant = a[0] * (a[4] - a[5] * a[7]) - a[1] * (a[3] - a[5] * a[6]) +
                               a[2] * (a[3] * a[7] - a[4] * a[6]);
    over = over != (determinant < 0);
  }
  return over;
}

}  // namespace

PointMap::PointMap(const View& view, uint32_t width, uint32_t height, uint32_t drawn_width,
                   uint32_t drawn_height, const Motions& motions)
    : view_(view),
      made_(view.made()),
      width_(drawn_width),
      height_(drawn_height),
      scale_x_(static_cast<double>(drawn_width) / width),
      scale_y_(static_cast<double>(drawn_height) / height),
      resize_x_(static_cast<double>(view.resized_width) / view.crop.width),
      resize_y_(static_cast<double>(view.resized_height) / view.crop.height),
      scaled_(drawn_width != width || drawn_height != height),
      from_right_(view.quarter == 2   ? !view.flip
                  : view.quarter == 3 ? true
                                      : view.quarter == 0 && view.flip),
      from_below_(view.quarter == 1 ? !view.flip
                                    : view.quarter == 2 || (view.quarter == 3 && view.flip)),
      mirrors_((view.flip != turns_over(motions.source)) != turns_over(motions.cut)),
      before_(motions.source.begin(), motions.source.end()),
      motions_(motions.cut.begin(), motions.cut.end()) {}

// In pixels of the view, before they are moved.
PointMap::Point PointMap::in_view(double x, double y, bool relative) const {
  Point p{x, y};
  if (relative) {
    p = {p.x * width_, p.y * height_};
  } else if (scaled_) {
    p = {p.x * scale_x_, p.y * scale_y_};
  }
  for (const PointMotion& motion : before_) motion.move(p.x, p.y);
  p.x = (p.x - view_.crop.x) * resize_x_ - view_.window.x;
  p.y = (p.y - view_.crop.y) * resize_y_ - view_.window.y;
  if (view_.flip) p.x = view_.window.width - p.x;
  view_.turn(p.x, p.y);
  return p;
}

PointMap::Point PointMap::point(double x, double y, bool relative) const {
  Point p = in_view(x, y, relative);
  for (const PointMotion& motion : motions_) motion.move(p.x, p.y);
  if (relative) p = {p.x / made_.width, p.y / made_.height};
  return p;
}

PointMap::Point PointMap::extent(float width, float height, bool relative) const {
  Point e{width, height};
  if (relative) {
    e = {e.x * width_, e.y * height_};
  } else if (scaled_) {
    e = {e.x * scale_x_, e.y * scale_y_};
  }
  e = {e.x * resize_x_, e.y * resize_y_};
  if (view_.quarter % 2 != 0) std::swap(e.x, e.y);
  if (relative) e = {e.x / made_.width, e.y / made_.height};
  return e;
}

// The box around the moved corners.
void PointMap::move_box_around(float* row, PointFormat format, bool relative) const {
  double left = row[0], top = row[1], right = row[2], bottom = row[3];
  if (format == PointFormat::kCxcywh) {
    left -= right / 2;
    top -= bottom / 2;
  }
  if (format != PointFormat::kXyxy) {
    right += left;
    bottom += top;
  }
  std::array<Point, 4> corners{{{left, top}, {right, top}, {right, bottom}, {left, bottom}}};
  Point low{}, high{};
  for (size_t i = 0; i < corners.size(); ++i) {
    Point& p = corners[i];
    p = in_view(p.x, p.y, relative);
    for (const PointMotion& motion : motions_) motion.move(p.x, p.y);
    if (relative) p = {p.x / made_.width, p.y / made_.height};
    low = i == 0 ? p : Point{std::min(low.x, p.x), std::min(low.y, p.y)};
    high = i == 0 ? p : Point{std::max(high.x, p.x), std::max(high.y, p.y)};
  }
  const Point size{high.x - low.x, high.y - low.y};
  const bool centred = format == PointFormat::kCxcywh, corner = format == PointFormat::kXyxy;
  row[0] = static_cast<float>(centred ? low.x + size.x / 2 : low.x);
  row[1] = static_cast<float>(centred ? low.y + size.y / 2 : low.y);
  row[2] = static_cast<float>(corner ? high.x : size.x);
  row[3] = static_cast<float>(corner ? high.y : size.y);
}

void PointMap::move_box(float* row, PointFormat format, bool relative) const {
  if (!before_.empty() || !motions_.empty()) return move_box_around(row, format, relative);
  const Point first = point(row[0], row[1], relative);
  if (format == PointFormat::kXyxy) {
    const Point last = point(row[2], row[3], relative);
    row[0] = static_cast<float>(from_right_ ? last.x : first.x);
    row[2] = static_cast<float>(from_right_ ? first.x : last.x);
    row[1] = static_cast<float>(from_below_ ? last.y : first.y);
    row[3] = static_cast<float>(from_below_ ? first.y : last.y);
    return;
  }
  const Point size = extent(row[2], row[3], relative);
  const bool corner = format == PointFormat::kXywh;
  row[0] = static_cast<float>(corner && from_right_ ? first.x - size.x : first.x);
  row[1] = static_cast<float>(corner && from_below_ ? first.y - size.y : first.y);
  row[2] = static_cast<float>(size.x);
  row[3] = static_cast<float>(size.y);
}

void PointMap::move_points(std::span<uint8_t> bytes, size_t numbers, bool relative) const {
  for (size_t at = 0; at < bytes.size(); at += numbers * sizeof(float)) {
    if (numbers == 3 && load<3>(bytes.data() + at) == std::array<float, 3>{}) continue;
    auto row = load<2>(bytes.data() + at);
    const Point p = point(row[0], row[1], relative);
    row = {static_cast<float>(p.x), static_cast<float>(p.y)};
    std::memcpy(bytes.data() + at, row.data(), sizeof(row));
  }
}

// Words: the number of objects, each one's number of polygons, each polygon's number of points, the
// points. Every sum is bounded by the bytes that there are before it is used.
void PointMap::move_polygons(std::span<uint8_t> bytes) const {
  if (bytes.empty()) return;
  const size_t words = bytes.size() / 4;
  if (bytes.size() % 4 != 0) no_rows("whole words", bytes.size());
  size_t at = 0;
  uint64_t counts = 1;
  for (int level = 0; level < 3; ++level) {
    if (counts > words - at) no_rows("outlines of objects", bytes.size());
    uint64_t next = 0;
    for (const size_t end = at + counts; at < end; ++at) next += word(bytes, at);
    counts = next;
  }
  if (counts > words || counts * 2 != words - at) no_rows("outlines of objects", bytes.size());
  move_points(bytes.subspan(4 * at), 2, false);
}

void PointMap::swap_pairs(std::span<uint8_t> bytes, size_t row_bytes, size_t numbers,
                          const Pairs& pairs) const {
  if (!mirrors_) return;
  const size_t size = numbers * sizeof(float);
  for (size_t row = 0; row + row_bytes <= bytes.size(); row += row_bytes) {
    for (const auto& [first, second] : pairs) {
      uint8_t* const one = bytes.data() + row + first * size;
      std::swap_ranges(one, one + size, bytes.data() + row + second * size);
    }
  }
}

void PointMap::move(double& x, double& y) const {
  const Point p = point(x, y, false);
  x = p.x;
  y = p.y;
}

void convert_boxes(std::span<uint8_t> bytes, PointFormat from, PointFormat to) {
  if (bytes.size() % (4 * sizeof(float)) != 0) no_rows("whole rows", bytes.size());
  if (from == to) return;
  for (size_t at = 0; at < bytes.size(); at += 4 * sizeof(float)) {
    auto row = load<4>(bytes.data() + at);
    for (size_t i = 0; i < 2; ++i) {  // across, down
      float &first = row[i], &size = row[i + 2];
      if (from == PointFormat::kXyxy) size -= first;
      if (from == PointFormat::kCxcywh) first -= size / 2;
      if (to == PointFormat::kCxcywh) first += size / 2;
      if (to == PointFormat::kXyxy) size += first;
    }
    std::memcpy(bytes.data() + at, row.data(), sizeof(row));
  }
}

void PointMap::move(std::span<uint8_t> bytes, PointFormat format, bool relative) const {
  if (format == PointFormat::kPolygons) return move_polygons(bytes);
  const bool boxes = format != PointFormat::kXy && format != PointFormat::kXyv;
  const size_t numbers = boxes ? 4 : format == PointFormat::kXy ? 2 : 3;
  if (bytes.size() % (numbers * sizeof(float)) != 0) no_rows("whole rows", bytes.size());
  if (!boxes) return move_points(bytes, numbers, relative);
  for (size_t at = 0; at < bytes.size(); at += 4 * sizeof(float)) {
    auto row = load<4>(bytes.data() + at);
    move_box(row.data(), format, relative);
    std::memcpy(bytes.data() + at, row.data(), sizeof(row));
  }
}

}  // namespace fastload
