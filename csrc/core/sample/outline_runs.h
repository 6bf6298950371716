// Outlines of objects as runs of pixels, by pycocotools' rule: bit for bit what its
// decode(merge(frPyObjects(outlines, height, width))) has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fastload {

// An object's pixels: where runs of a picture's pixels end, column by column, ascending. The first
// run is outside of the object and may be empty, the second inside, and so on; the last one ends
// with the picture.
using RunEnds = std::vector<uint64_t>;

// One per thread; keeps its memory between outlines.
class OutlineRuns {
 public:
  // An object of height x width pixels begins: no outlines. Throws Error(kLimit) for more than 2^32
  // pixels.
  void begin(uint32_t height, uint32_t width);
  // One more outline of it: x, y of each of its corners. Throws Error(kFormat) for numbers that are
  // not finite or beyond 2^27 pixels, Error(kLimit) where it crosses too many columns.
  void add(std::span<const double> xy);
  // The pixels that are within any of the outlines.
  void ends(RunEnds& to);

 private:
  void add_side(int from_x, int from_y, int to_x, int to_y);
  void add_flat(int x, int y, double slope, int length);
  void add_steep(int x, int y, double slope, int length);
  void add_change(int column, int y);

  uint32_t height_ = 0, width_ = 0;
  std::vector<uint64_t> changes_;  // of the outline in work: inside becomes outside, or back
  // Of all outlines so far: the first pixel inside times two, or the first one outside, plus one.
  std::vector<uint64_t> sides_;
};

}  // namespace fastload
