// What a view does to the objects of a sample, whose boxes lead the other fields that are of them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace fastload {

// How points lie in a row of numbers, all float32.
enum class PointFormat : uint8_t {
  kXyxy,      // boxes: corners
  kXywh,      // boxes: left, top, width, height
  kCxcywh,    // boxes: centre, width, height
  kXy,        // points
  kXyv,       // points, each with a number that no view changes
  kPolygons,  // outlines of objects, with their counts in front (FORMAT.md)
  kAreas,     // run lengths of objects, likewise: under a view they have another length
  kMixed,     // objects of either, outlines in float64
};

// Their names, in that order.
inline constexpr std::array<const char*, 8> kPointFormats{"xyxy", "xywh",     "cxcywh", "xy",
                                                          "xyv",  "polygons", "rle",    "mixed"};

struct ObjectsPlan {
  uint32_t part = 0;  // the source's column of the boxes
  PointFormat format = PointFormat::kXyxy;
  bool relative = false;
  bool clip = false;   // boxes, by each crop, pad and motion, as torchvision's v2 does
  bool clamp = false;  // boxes, where the picture ends, behind all of these
  bool drop = false;   // objects whose box is too small then, with all rows that are of them
  // With `drop`: objects, too, whose boxes reach over the picture's border by more than float32
  // rounds.
  bool inside = false;
  // Output pixels that a box has to be wide and high; 0: more than none.
  double min_size = 1;
  double min_area = 1;
  std::optional<uint32_t> without = {};  // a column of bools: objects that have it are dropped
};

}  // namespace fastload
