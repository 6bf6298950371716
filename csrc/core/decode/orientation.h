// Which way a picture's file says that it is to be turned, and turning it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/geometry.h"
#include "base/row_sink.h"
#include "decode/codecs/registry.h"

namespace fastload {

// EXIF's numbers: 1 as stored, 2 mirrored, 3 upside down, 4 both, 5 mirrored about the diagonal from
// the upper left, 6 turned clockwise, 7 mirrored about the other diagonal, 8 turned
// counter-clockwise.
class Orientation {
 public:
  constexpr Orientation() = default;
  // What is none of them is 1.
  constexpr explicit Orientation(int number)
      : number_(number < 1 || number > 8 ? 1 : static_cast<uint8_t>(number)) {}

  [[nodiscard]] constexpr int number() const { return number_; }
  [[nodiscard]] constexpr bool turns() const { return number_ != 1; }
  // Whether rows become columns.
  [[nodiscard]] constexpr bool swaps() const { return number_ >= 5; }
  // Whether stored columns, then rows, are counted from the other end.
  [[nodiscard]] constexpr bool from_right() const {
    return number_ == 2 || number_ == 3 || number_ == 7 || number_ == 8;
  }
  [[nodiscard]] constexpr bool from_bottom() const {
    return number_ == 3 || number_ == 4 || number_ == 6 || number_ == 7;
  }
  // Where a part of the turned picture is stored in the one of that size.
  [[nodiscard]] Rect stored(const Rect& part, int width, int height) const;

 private:
  uint8_t number_ = 1;
};

// What Pillow's ImageOps.exif_transpose goes by: EXIF of a JPEG, PNG, WebP or TIFF, else the XMP of
// the first three. 1 without either, and where they are damaged; never throws but for memory. A
// JPEG's header suffices.
Orientation orientation_of(Bytes file);

// Takes the rows of a stored part, and hands it on turned when all of them are there.
class UprightSink final : public RowSink {
 public:
  // `scratch` has the part, stored and turned, while this lives. `part` is of the turned picture.
  UprightSink(Orientation orientation, const Rect& part, size_t pixel_bytes,
           std::vector<uint8_t>& scratch, RowSink& next);
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override;
  void restart() override {}  // nothing has been handed on
  // After the last row.
  void finish();

 private:
  const Orientation orientation_;
  const int width_, height_;  // of the turned part
  const size_t pixel_bytes_, row_bytes_;
  uint8_t* stored_;
  RowSink& next_;
};

}  // namespace fastload
