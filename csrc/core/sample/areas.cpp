#include "sample/areas.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "sample/shapes.h"
#include "transform/nearest.h"
#include "transform/pixels/warp.h"
#include "transform/turn.h"

namespace fastload {
namespace {

constexpr uint32_t kMaxSide = 1 << 24;              // pixels; a view's, too
constexpr uint64_t kMostMoved = uint64_t{1} << 30;  // pixels of an object that is moved whole

// Run lengths column by column, zeros' first.
class Runs {
 public:
  void add(bool inside, uint32_t length) {
    if (inside != inside_) {
      runs.push_back(0);
      inside_ = inside;
    }
    runs.back() += length;
  }
  std::vector<uint32_t> runs{0};

 private:
  bool inside_ = false;
};

std::vector<uint32_t> seen(const RunEnds& ends, uint32_t height, uint32_t width, const View& view) {
  std::vector<int> columns, rows;
  nearest_positions(view, columns, rows);
  Runs found;
  for (const int column : columns) {
    auto run = ends.begin();
    bool begun = false;
    for (const int row : rows) {
      const bool within = column >= 0 && row >= 0 && column < static_cast<int>(width) &&
                          row < static_cast<int>(height);
      if (!within) {
        found.add(false, 1);
        continue;
      }
      const uint64_t at = static_cast<uint64_t>(column) * height + static_cast<uint64_t>(row);
      if (!begun) run = std::upper_bound(run, ends.end(), at);
      begun = true;
      while (*run <= at) ++run;  // rows do not fall, and the last run ends with the picture
      found.add((run - ends.begin()) % 2 != 0, 1);
    }
  }
  return std::move(found.runs);
}

// The pixels, row by row, of a picture of that size.
std::vector<uint8_t> drawn(const std::vector<uint32_t>& runs, int width, int height) {
  const auto w = static_cast<size_t>(width), h = static_cast<size_t>(height);
  std::vector<uint8_t> pixels(w * h);
  size_t at = 0;  // column by column
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const size_t end = at + runs[i]; at < end; ++at) {
      pixels[at % h * w + at / h] = static_cast<uint8_t>(i % 2);
    }
  }
  return pixels;
}

// The runs of a picture of that size, after it was turned.
std::vector<uint32_t> turned(const std::vector<uint32_t>& runs, int width, int height,
                             int quarter) {
  const std::vector<uint8_t> pixels = drawn(runs, width, height);
  std::vector<uint8_t> others(pixels.size());
  const bool odd = quarter % 2 != 0;
  turn_pixels(pixels.data(), width, height, 1, quarter, others.data(),
              static_cast<size_t>(odd ? height : width));
  return runs_of(others.data(), odd ? width : height, odd ? height : width);
}

// The runs of a picture of that size, after its pixels were moved.
std::vector<uint32_t> moved(const std::vector<uint32_t>& runs, int width, int height,
                            std::span<const Motion> motions) {
  std::vector<uint8_t> pixels = drawn(runs, width, height), others(pixels.size());
  const uint8_t outside = 0;
  for (const Motion& motion : motions) {
    move_nearest(motion, false, 1, width, height, pixels.data(), &outside, others.data());
    pixels.swap(others);
  }
  return runs_of(pixels.data(), height, width);
}

// Adds what is left of an area under its view.
void add_seen(const Shapes& shapes, const Shapes::Object& area, const ViewAt& view_at,
              const Motions& motions, std::pair<int, int> drawn, ShapesMaker& to) {
  std::vector<uint32_t> runs;
  shapes.runs(area, runs);
  RunEnds ends = ends_of_runs(runs, area.height, area.width);
  if (!motions.source.empty()) {
    ends = moved_before(ends, area.height, area.width, motions.source, drawn);
  }
  const View view = view_at(static_cast<int>(area.width), static_cast<int>(area.height));
  std::vector<uint32_t> own = seen(ends, area.height, area.width, view);
  const auto [width, height] = view.made();
  if (view.quarter != 0) own = turned(own, view.window.width, view.window.height, view.quarter);
  if (!motions.cut.empty()) own = moved(own, width, height, motions.cut);
  to.add_area(static_cast<uint32_t>(height), static_cast<uint32_t>(width), own);
}

}  // namespace

std::vector<uint32_t> runs_of(const uint8_t* pixels, int height, int width) {
  const auto [w, h] =
      std::array<size_t, 2>{static_cast<size_t>(width), static_cast<size_t>(height)};
  Runs found;
  for (size_t x = 0; x < w; ++x) {
    for (size_t y = 0; y < h; ++y) found.add(pixels[y * w + x] != 0, 1);
  }
  return std::move(found.runs);
}

RunEnds ends_of_runs(std::span<const uint32_t> runs, uint32_t height, uint32_t width) {
  const bool sized = height - 1 < kMaxSide && width - 1 < kMaxSide;
  RunEnds ends;
  uint64_t end = 0;
  for (const uint32_t run : runs) ends.push_back(end += run);
  if (sized && end == uint64_t{height} * width) return ends;
  throw Error(ErrorKind::kFormat, "the runs of an object have " + std::to_string(end) +
                                      " pixels in a picture of " + std::to_string(width) + "x" +
                                      std::to_string(height) + ". Pack again.");
}

RunEnds moved_before(const RunEnds& ends, uint32_t height, uint32_t width,
                     std::span<const Motion> motions, std::pair<int, int> drawn) {
  if (uint64_t{height} * width > kMostMoved) {
    throw Error(ErrorKind::kLimit, "areas of " + std::to_string(kMostMoved) +
                                       " pixels at most are moved before the crop. Found: " +
                                       std::to_string(width) + "x" + std::to_string(height) + ".");
  }
  std::vector<uint32_t> runs;
  for (size_t i = 0; i < ends.size(); ++i) {
    runs.push_back(static_cast<uint32_t>(ends[i] - (i == 0 ? 0 : ends[i - 1])));
  }
  std::vector<Motion> own(motions.begin(), motions.end());
  for (Motion& motion : own) {
    motion = motion.at_size(static_cast<double>(drawn.first) / width,
                            static_cast<double>(drawn.second) / height);
  }
  RunEnds found;
  uint64_t end = 0;
  for (const uint32_t run : moved(runs, static_cast<int>(width), static_cast<int>(height), own)) {
    found.push_back(end += run);
  }
  return found;
}

std::vector<uint8_t> move_areas(std::span<const uint8_t> bytes, const ViewAt& view_at,
                                const Motions& motions, std::pair<int, int> drawn) {
  if (bytes.empty()) return {};
  const Shapes shapes(bytes, PointFormat::kAreas);
  ShapesMaker made(PointFormat::kAreas);
  for (const Shapes::Object& object : shapes.objects()) {
    add_seen(shapes, object, view_at, motions, drawn, made);
  }
  return made.value();
}

std::vector<uint8_t> move_mixed(std::span<const uint8_t> bytes, const PointMap& map,
                                const ViewAt& view_at, const Motions& motions,
                                std::pair<int, int> drawn) {
  if (bytes.empty()) return {};
  const Shapes shapes(bytes, PointFormat::kMixed);
  ShapesMaker made(PointFormat::kMixed);
  std::vector<double> points;
  for (const Shapes::Object& object : shapes.objects()) {
    if (object.is_area) {
      add_seen(shapes, object, view_at, motions, drawn, made);
      continue;
    }
    made.begin_outlines(object.count);
    for (uint32_t i = 0; i < object.count; ++i) {
      shapes.points(shapes.polygons()[object.first + i], points);
      for (size_t at = 0; at < points.size(); at += 2) map.move(points[at], points[at + 1]);
      made.add_outline(points);
    }
  }
  return made.value();
}

}  // namespace fastload
