#include "sample/field_place.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"

namespace fastload {
namespace {

using Form = FieldPlan::Form;

// Repeats `pattern` over `size` bytes; an empty one is zeros.
void fill(uint8_t* to, size_t size, const std::vector<uint8_t>& pattern) noexcept {
  if (size == 0) return;  // there may be no memory at all
  const bool even = std::all_of(pattern.begin(), pattern.end(),
                                [&](uint8_t byte) { return byte == pattern.front(); });
  if (even) {
    std::memset(to, pattern.empty() ? 0 : pattern.front(), size);
    return;
  }
  for (size_t i = 0; i + pattern.size() <= size; i += pattern.size()) {
    std::memcpy(to + i, pattern.data(), pattern.size());
  }
}

void fill_rows(uint8_t* to, size_t row_bytes, int rows, size_t size,
               const std::vector<uint8_t>& pattern) noexcept {
  if (to == nullptr) return;  // of pictures without pixels
  for (int y = 0; y < rows; ++y) fill(to + row_bytes * static_cast<size_t>(y), size, pattern);
}

// Whether n parts of `size` bytes, `stride` apart, lie in `memory` bytes.
bool fits(size_t n, size_t stride, size_t size, size_t memory) {
  if (n == 0) return true;
  return size <= memory && (n == 1 || (stride >= size && (memory - size) / (n - 1) >= stride));
}

bool fits_rows(const FieldPlace& place, uint64_t width, size_t n) {
  const std::vector<int64_t>& ends = place.offsets;
  return ends.size() == n + 1 && ends.front() >= 0 && std::is_sorted(ends.begin(), ends.end()) &&
         (width == 0 || static_cast<uint64_t>(ends.back()) <= place.memory.size() / width);
}

// Of pixels of `size` bytes; `counts`: pictures of each sample, or nothing for one.
bool fits_list(const FieldPlace& place, const std::vector<int64_t>& counts, size_t size, size_t n) {
  if (place.offsets.size() != n || place.sizes.size() != n) return false;
  const uint64_t memory = place.memory.size();
  for (size_t i = 0; i < n; ++i) {
    const auto [height, width] = place.sizes[i];
    const int64_t count = counts.empty() ? 1 : counts[i];
    if (height < 0 || width < 0 || place.offsets[i] < 0 || count < 0 ||
        static_cast<uint64_t>(place.offsets[i]) > memory) {
      return false;
    }
    const uint64_t pixels = static_cast<uint64_t>(height) * static_cast<uint64_t>(width);
    const uint64_t left = (memory - static_cast<uint64_t>(place.offsets[i])) / size;
    if (pixels != 0 && static_cast<uint64_t>(count) > left / pixels) return false;
  }
  return true;
}

bool fits_masks(const FieldPlace& place, size_t n) {
  const auto [height, width] = place.room;
  if (!place.counts.empty())
    return place.counts.size() == n && fits_list(place, place.counts, 1, n);
  return place.sizes.empty() && height >= 0 && width >= 0 &&
         fits_rows(place, static_cast<uint64_t>(height) * static_cast<uint64_t>(width), n);
}

bool fits_pictures(const FieldPlace& place, const FieldPlan& field, size_t n) {
  if (!place.sizes.empty() || !place.offsets.empty())
    return fits_list(place, {}, field.pixel_bytes(), n);
  const auto height = static_cast<uint64_t>(place.room.height);
  const auto width = static_cast<uint64_t>(place.room.width);
  if (place.room.height < 0 || place.room.width < 0) return false;
  if (height == 0 || width == 0) return true;
  const bool dense = place.row_bytes == field.pixel_bytes() * width;
  if (!dense && (!field.picture.store.channels_last || !field.steps.empty()))
    return false;  // there are no rows of whole pixels
  return place.row_bytes / field.pixel_bytes() >= width &&
         place.memory.size() / place.row_bytes >= height &&
         fits(n, place.stride, height * place.row_bytes * field.frames(), place.memory.size());
}

}  // namespace

void check_place(const FieldPlace& place, const FieldPlan& field, size_t n, size_t number) {
  const bool good = n == 0                         ? true
                    : field.form == Form::kPicture ? fits_pictures(place, field, n)
                    : field.form == Form::kMasks   ? fits_masks(place, n)
                    : field.is_ragged()
                        ? fits_rows(place, field.width, n)
                        : place.offsets.empty() && place.sizes.empty() &&
                              fits(n, place.stride, field.width * field.frames(),
                                   place.memory.size());
  if (good) return;
  const size_t bytes =
      field.frames() * (field.form == Form::kPicture
                            ? place.row_bytes * static_cast<size_t>(std::max(place.room.height, 0))
                            : field.width);
  throw Error(ErrorKind::kValue,
              "The slot does not fit field " + std::to_string(number) + " of " + std::to_string(n) +
                  " samples of " + std::to_string(bytes) + " bytes. Found: " +
                  std::to_string(place.memory.size()) + " bytes of memory, stride " +
                  std::to_string(place.stride) + ", " + std::to_string(place.offsets.size()) +
                  " offsets, " + std::to_string(place.sizes.size()) + " sizes, room for " +
                  std::to_string(place.room.width) + "x" + std::to_string(place.room.height) +
                  " pixels in rows of " + std::to_string(place.row_bytes) + " bytes.");
}

void fill_blank(const FieldPlace& place, const FieldPlan& field, uint32_t position) noexcept {
  if (field.form == Form::kMasks) {
    const MaskRoom room = place.masks_at(position);
    const size_t bytes = static_cast<size_t>(room.height) * static_cast<size_t>(room.width);
    if (room.count != 0 && bytes != 0) std::memset(room.at, 0, room.count * bytes);
  } else if (field.is_ragged()) {
    const std::span<uint8_t> rows = place.rows(position, field.width);
    if (!rows.empty()) std::memset(rows.data(), 0, rows.size());
  } else if (field.form == Form::kPicture) {
    const auto [height, width] = place.size_at(position);
    for (uint32_t step = 0; step < field.frames(); ++step) {
      fill_rows(place.frame_at(position, step), place.row_bytes_at(position, field), height,
                field.pixel_bytes() * static_cast<size_t>(width), field.blank);
    }
  } else {
    fill(place.at(position), field.width * field.frames(), field.blank);
  }
}

void fill_padding(const FieldPlace& place, const FieldPlan& field, uint32_t position,
                  PictureSize size) noexcept {
  if (place.memory.empty() || !place.sizes.empty() || size == place.room) return;
  uint8_t* const to = place.at(position);
  const size_t pixel = field.pixel_bytes();
  const size_t used = pixel * static_cast<size_t>(size.width);
  const size_t all = pixel * static_cast<size_t>(place.room.width);
  fill_rows(to + used, place.row_bytes, size.height, all - used, field.blank);
  fill_rows(to + place.row_bytes * static_cast<size_t>(size.height), place.row_bytes,
            place.room.height - size.height, all, field.blank);
}

}  // namespace fastload
