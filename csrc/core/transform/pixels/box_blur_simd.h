// Box blurs over a type V that names the operations on kLanes numbers of 32 bits. Sums are whole
// numbers, so their order changes nothing.
#pragma once

#include <cstring>
#include <utility>

#include "transform/pixels/box_blur_kernels.h"

namespace fastload {

template <typename V>
struct BoxBlur {
  using Int = typename V::Int;

  const Box& box;
  Int inner;
  Int outer;
  Int half;

  explicit BoxBlur(const Box& b)
      : box(b), inner(V::set(b.inner)), outer(V::set(b.outer)), half(V::set(1U << 23)) {}

  // `sum` of the inner pixels, `far` of the two outer ones.
  void store(uint8_t* to, Int sum, Int far) const {
    const Int bulk = V::add(V::mul(sum, inner), V::mul(far, outer));
    V::store_top(to, V::add(bulk, half));
  }

  // Puts the first and the last pixel around `line`.
  void surround(uint8_t* line, int width) const {
    uint8_t* last = line + 3 * (static_cast<ptrdiff_t>(width) - 1);
    for (ptrdiff_t i = 1; i <= box.reach + 1; ++i) {
      std::memcpy(line - 3 * i, line, 3);
      std::memcpy(last + 3 * i, last, 3);
    }
  }

  // Neighbours are added one by one: radii are a few pixels.
  void line(const uint8_t* from, uint8_t* to, int width) const {
    const ptrdiff_t end = 3 * static_cast<ptrdiff_t>(box.reach);
    for (ptrdiff_t i = 0; i < 3 * static_cast<ptrdiff_t>(width); i += V::kLanes) {
      Int sum = V::load(from + i);
      for (ptrdiff_t k = 3; k <= end; k += 3) {
        sum = V::add(sum, V::add(V::load(from + i - k), V::load(from + i + k)));
      }
      store(to + i, sum, V::add(V::load(from + i - end - 3), V::load(from + i + end + 3)));
    }
  }

  void rows(const Picture& picture, uint8_t* scratch) const {
    const size_t bytes = size_t{3} * static_cast<size_t>(picture.width);
    const size_t margin = 3 * (static_cast<size_t>(box.reach) + 1);
    uint8_t* one = scratch + margin;
    uint8_t* other = one + box_blur_line(box, picture.width);
    for (int y = 0; y < picture.height; ++y) {
      uint8_t* row = picture.pixels + bytes * static_cast<size_t>(y);
      std::memcpy(one, row, bytes);
      for (int pass = 0; pass < kBoxPasses; ++pass) {
        surround(one, picture.width);
        line(one, other, picture.width);
        std::swap(one, other);
      }
      std::memcpy(row, one, bytes);
    }
  }

  // One pass down a strip: rows of `from` lie `from_stride` apart, those of `to` `to_stride`.
  void strip(const uint8_t* from, size_t from_stride, uint8_t* to, size_t to_stride, int height,
             int bytes) const {
    constexpr int kVectors = kBoxStrip / V::kLanes;
    const auto row = [&](int y) {
      const int inside = y < 0 ? 0 : y < height ? y : height - 1;
      return from + from_stride * static_cast<size_t>(inside);
    };
    Int sums[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = V::set(0);
      for (int y = -box.reach; y <= box.reach; ++y) {
        sums[v] = V::add(sums[v], V::load(row(y) + v * V::kLanes));
      }
    }
    alignas(64) uint8_t line[kBoxStrip];
    for (int y = 0; y < height; ++y) {
      const uint8_t* before = row(y - box.reach - 1);
      const uint8_t* leaves = row(y - box.reach);
      const uint8_t* comes = row(y + box.reach + 1);
      for (int v = 0; v < kVectors; ++v) {
        const int at = v * V::kLanes;
        const Int next = V::load(comes + at);
        store(line + at, sums[v], V::add(V::load(before + at), next));
        sums[v] = V::sub(V::add(sums[v], next), V::load(leaves + at));
      }
      std::memcpy(to + to_stride * static_cast<size_t>(y), line, static_cast<size_t>(bytes));
    }
  }

  void columns(const Picture& picture, uint8_t* scratch) const {
    const size_t row = size_t{3} * static_cast<size_t>(picture.width);
    uint8_t* one = scratch;
    uint8_t* other = scratch + size_t{kBoxStrip} * static_cast<size_t>(picture.height);
    for (size_t x = 0; x < row; x += kBoxStrip) {
      uint8_t* at = picture.pixels + x;
      const int bytes = row - x < kBoxStrip ? static_cast<int>(row - x) : kBoxStrip;
      strip(at, row, one, kBoxStrip, picture.height, kBoxStrip);
      strip(one, kBoxStrip, other, kBoxStrip, picture.height, kBoxStrip);
      strip(other, kBoxStrip, at, row, picture.height, bytes);
    }
  }
};

template <typename V>
void box_blur(const Box& box, const Picture& picture, uint8_t* scratch) {
  const BoxBlur<V> blur(box);
  blur.rows(picture, scratch);
  blur.columns(picture, scratch);
}

}  // namespace fastload
