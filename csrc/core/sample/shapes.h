// The outlines and areas of a sample's objects, as a value of a field of polygons has them
// (FORMAT.md), in any of its three formats.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sample/objects_plan.h"

namespace fastload {

// What a value says of its objects; coordinates and runs stay in the value.
class Shapes {
 public:
  // Borrows the bytes. Throws Error(kFormat) where they are no objects of that format.
  Shapes(std::span<const uint8_t> bytes, PointFormat format);

  struct Object {
    bool is_area = false;
    uint32_t first = 0, count = 0;             // of its polygons
    uint32_t height = 0, width = 0, runs = 0;  // of an area
    size_t at = 0;                             // byte of an area's first run
  };
  struct Polygon {
    uint32_t points;
    size_t at;  // byte of its first point
  };
  [[nodiscard]] const std::vector<Object>& objects() const { return objects_; }
  [[nodiscard]] const std::vector<Polygon>& polygons() const { return polygons_; }
  // x and y of all points of one polygon.
  void points(const Polygon& polygon, std::vector<double>& to) const;
  // The run lengths of an area.
  void runs(const Object& area, std::vector<uint32_t>& to) const;

  // A value of the same format, of these objects alone, in that order. Throws Error(kFormat) for
  // numbers that are none of its objects.
  [[nodiscard]] std::vector<uint8_t> of(std::span<const uint32_t> numbers) const;

 private:
  uint32_t take();
  [[noreturn]] void refuse() const;

  std::span<const uint8_t> bytes_;
  PointFormat format_;
  size_t at_ = 0;
  std::vector<Object> objects_;
  std::vector<Polygon> polygons_;
};

// A value made object by object.
class ShapesMaker {
 public:
  explicit ShapesMaker(PointFormat format) : format_(format) {}

  // An object of so many outlines begins: they follow.
  void begin_outlines(uint32_t count);
  // x and y of its corners, rounded where the format has float32.
  void add_outline(std::span<const double> xy);
  void add_area(uint32_t height, uint32_t width, std::span<const uint32_t> runs);
  // The value; of no objects their number alone.
  [[nodiscard]] std::vector<uint8_t> value() const;

 private:
  PointFormat format_;
  std::vector<uint32_t> forms_, polygons_, points_, heads_, runs_;
  std::vector<double> numbers_;
};

}  // namespace fastload
