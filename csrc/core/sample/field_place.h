// Where a batch's part of one field lies in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sample/field_plan.h"
#include "sample/masks.h"

namespace fastload {

struct PictureSize {
  int height = 0;  // pixels
  int width = 0;
  bool operator==(const PictureSize&) const = default;
};

// Samples lie `stride` bytes apart; or rows, or masks of one size, as `offsets` say, (n + 1) of
// them, in rows; or pictures, or each sample's masks, of a list, (n) of them, in bytes, each of its
// own size.
struct FieldPlace {
  std::span<uint8_t> memory;  // borrowed
  size_t stride = 0;
  std::vector<int64_t> offsets;
  std::vector<PictureSize> sizes;  // of pictures or masks of a list
  std::vector<int64_t> counts;     // of masks of a list
  PictureSize room;                // of other pictures and masks
  size_t row_bytes = 0;            // of pictures: from one row to the next

  // The memory of one sample.
  [[nodiscard]] uint8_t* at(uint32_t position) const {
    if (memory.empty()) return nullptr;  // of values without bytes
    return memory.data() +
           (offsets.empty() ? position * stride : static_cast<size_t>(offsets[position]));
  }
  // That of a sample's picture at a step; they lie one after the other.
  [[nodiscard]] uint8_t* frame_at(uint32_t position, uint32_t step) const {
    uint8_t* const first = at(position);
    if (first == nullptr) return nullptr;
    return first + step * row_bytes * static_cast<size_t>(room.height);
  }
  [[nodiscard]] PictureSize size_at(uint32_t position) const {
    return sizes.empty() ? room : sizes[position];
  }
  [[nodiscard]] size_t row_bytes_at(uint32_t position, const FieldPlan& field) const {
    return sizes.empty() ? row_bytes
                         : field.pixel_bytes() * static_cast<size_t>(sizes[position].width);
  }
  // The masks of one sample.
  [[nodiscard]] MaskRoom masks_at(uint32_t position) const {
    const auto [height, width] = size_at(position);
    if (!counts.empty()) {
      return {at(position), static_cast<uint32_t>(counts[position]), height, width};
    }
    const auto bytes = static_cast<uint32_t>(height) * static_cast<uint32_t>(width);
    const std::span<uint8_t> all = rows(position, bytes);
    const int64_t count = offsets[position + 1] - offsets[position];
    return {all.data(), static_cast<uint32_t>(count), height, width};
  }
  // The rows of one sample.
  [[nodiscard]] std::span<uint8_t> rows(uint32_t position, uint32_t width) const {
    const auto begin = static_cast<size_t>(offsets[position]) * width;
    const auto end = static_cast<size_t>(offsets[position + 1]) * width;
    return memory.subspan(begin, end - begin);
  }
};

// Throws Error(kValue) where n samples of the field would not lie in the place's memory.
void check_place(const FieldPlace& place, const FieldPlan& field, size_t n, size_t number);

// Fills the position's part with the field's blank.
void fill_blank(const FieldPlace& place, const FieldPlan& field, uint32_t position) noexcept;
// The same for what is right of and below a picture of that size.
void fill_padding(const FieldPlace& place, const FieldPlan& field, uint32_t position,
                  PictureSize size) noexcept;

}  // namespace fastload
