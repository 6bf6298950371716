#include "transform/turn.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

namespace fastload {
namespace {

constexpr int kBlock = 32;  // pixels: what is read and written of that square lies in L1

// Where the turned picture's first pixel was, and how far on its next one to the right and the one
// below it were.
struct Walk {
  const uint8_t* first;
  ptrdiff_t right, down;
};

Walk walk_of(const uint8_t* from, int width, int height, ptrdiff_t pixel, int quarter) {
  const ptrdiff_t row = pixel * width;
  const uint8_t* const right = from + row - pixel;
  const uint8_t* const below = from + row * (height - 1);
  if (quarter == 1) return {right, row, -pixel};
  if (quarter == 2) return {below + row - pixel, -pixel, -row};
  if (quarter == 3) return {below, -row, pixel};
  return {from, pixel, row};
}

// `bytes`: of a pixel, known when compiled or not.
template <class Bytes>
void turn(const Walk& walk, int width, int height, uint8_t* to, size_t row, Bytes bytes) {
  for (int top = 0; top < height; top += kBlock) {
    for (int left = 0; left < width; left += kBlock) {
      const int right = std::min(left + kBlock, width);
      for (int y = top; y < std::min(top + kBlock, height); ++y) {
        const uint8_t* from = walk.first + walk.down * y + walk.right * left;
        uint8_t* at = to + row * static_cast<size_t>(y) + bytes * static_cast<size_t>(left);
        for (int x = left; x < right; ++x, from += walk.right, at += bytes) {
          std::memcpy(at, from, bytes);
        }
      }
    }
  }
}

}  // namespace

void turn_pixels(const uint8_t* from, int width, int height, size_t pixel_bytes, int quarter,
                 uint8_t* to, size_t row) {
  if (width < 1 || height < 1) return;
  const Walk walk = walk_of(from, width, height, static_cast<ptrdiff_t>(pixel_bytes), quarter);
  if (quarter % 2 != 0) std::swap(width, height);
  const auto by = [&](auto bytes) { turn(walk, width, height, to, row, bytes); };
  switch (pixel_bytes) {  // what most pictures and masks have is copied in one or two moves
    case 1:
      return by(std::integral_constant<size_t, 1>());
    case 2:
      return by(std::integral_constant<size_t, 2>());
    case 3:
      return by(std::integral_constant<size_t, 3>());
    default:
      return by(pixel_bytes);
  }
}

RowSink& TurnSink::begin(int quarter, int width, int height, size_t pixel_bytes, RowSink& out) {
  out_ = nullptr;
  if (quarter == 0) return out;
  out_ = &out;
  quarter_ = quarter;
  width_ = width;
  height_ = height;
  pixel_bytes_ = pixel_bytes;
  const size_t bytes = pixel_bytes * static_cast<size_t>(width) * static_cast<size_t>(height);
  given_.reserve(bytes);
  turned_.reserve(bytes + RowSink::kSlack);
  return *this;
}

void TurnSink::rows(const uint8_t* pixels, size_t stride, int y, int count) {
  const size_t row = pixel_bytes_ * static_cast<size_t>(width_);
  uint8_t* to = given_.data() + row * static_cast<size_t>(y);
  for (int i = 0; i < count; ++i, pixels += stride, to += row) std::memcpy(to, pixels, row);
}

void TurnSink::end() {
  if (out_ == nullptr) return;
  const bool odd = quarter_ % 2 != 0;
  const size_t row = pixel_bytes_ * static_cast<size_t>(odd ? height_ : width_);
  turn_pixels(given_.data(), width_, height_, pixel_bytes_, quarter_, turned_.data(), row);
  out_->rows(turned_.data(), row, 0, odd ? width_ : height_);
}

}  // namespace fastload
