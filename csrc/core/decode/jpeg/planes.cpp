#include "decode/jpeg/planes.h"

#include <algorithm>

namespace fastload {
namespace {

constexpr size_t kMargin = 64;  // readable and writable bytes before and behind each row's samples

}  // namespace

bool interpolates_columns(const JpegHeader& header) {
  return header.mcu_width == 16 && header.plane_width(1) > 2;
}

bool interpolates_rows(const JpegHeader& header) {
  if (header.mcu_height != 16) return false;
  return header.mcu_width == 8 || interpolates_columns(header);
}

McuWindow needed_mcus(const JpegHeader& header, Rect roi) {
  const int columns = interpolates_columns(header) ? 1 : 0;
  const int rows = interpolates_rows(header) ? 1 : 0;
  // Interpolation reaches one chroma sample beyond the region, two pixels at most.
  const int left = std::max(0, roi.x - columns);
  const int right = std::min(header.width, roi.x + roi.width + columns);
  const int top = std::max(0, roi.y - rows);
  const int bottom = std::min(header.height, roi.y + roi.height + rows);
  return {left / header.mcu_width, (right - 1) / header.mcu_width + 1, top / header.mcu_height,
          (bottom - 1) / header.mcu_height + 1};
}

void JpegPlanes::reset(const JpegHeader& header, const McuWindow& window) {
  const int mcu_rows = interpolates_rows(header) ? 2 : 1;
  for (int c = 0; c < header.component_count; ++c) {
    Plane& plane = planes_[static_cast<size_t>(c)];
    const JpegComponent& component = header.components[static_cast<size_t>(c)];
    plane.mcu_samples = 8 * component.h;
    plane.ring_rows = 8 * component.v * mcu_rows;
    plane.first_x = window.column_begin * plane.mcu_samples;
    const int columns = (window.column_end - window.column_begin) * plane.mcu_samples;
    plane.stride = (static_cast<size_t>(columns) + 63) / 64 * 64 + 2 * kMargin;
    const size_t size = plane.stride * static_cast<size_t>(plane.ring_rows) + kMargin;
    if (plane.samples.size() < size) plane.samples.resize(size);
  }
}

size_t JpegPlanes::offset(const Plane& plane, int x, int y) const {
  return kMargin + static_cast<size_t>(y & (plane.ring_rows - 1)) * plane.stride +
         static_cast<size_t>(x - plane.first_x);
}

uint8_t* JpegPlanes::blocks(int component, int block_row, int mcu_column) {
  Plane& plane = planes_[static_cast<size_t>(component)];
  return plane.samples.data() + offset(plane, mcu_column * plane.mcu_samples, block_row * 8);
}

const uint8_t* JpegPlanes::at(int component, int x, int y) const {
  const Plane& plane = planes_[static_cast<size_t>(component)];
  return plane.samples.data() + offset(plane, x, y);
}

void JpegPlanes::extend_edges(const JpegHeader& header, int mcu_row) {
  for (int c = 1; c < header.component_count; ++c) {
    Plane& plane = planes_[static_cast<size_t>(c)];
    const int width = header.plane_width(c);
    const int last = width - 1 - plane.first_x;
    const bool has_last = last < static_cast<int>(plane.stride - 2 * kMargin);
    for (int y = 8 * mcu_row; y < 8 * mcu_row + 8; ++y) {
      uint8_t* const row = plane.samples.data() + offset(plane, plane.first_x, y);
      row[-1] = row[0];  // only the picture's own left edge is ever asked for
      if (has_last) row[last + 1] = row[last];
    }
  }
}

}  // namespace fastload
