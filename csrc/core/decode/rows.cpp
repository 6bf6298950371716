#include "decode/rows.h"

namespace fastload {

void emit_picture(Bytes pixels, size_t width, size_t pixel_bytes, Rect roi,
                  std::vector<uint8_t>& scratch, RowSink& sink) {
  const size_t stride = width * pixel_bytes;
  const size_t row_bytes = static_cast<size_t>(roi.width) * pixel_bytes;
  const size_t start =
      static_cast<size_t>(roi.y) * stride + static_cast<size_t>(roi.x) * pixel_bytes;
  int direct = roi.height;
  const auto end = [&](int rows) {
    return start + static_cast<size_t>(rows - 1) * stride + row_bytes;
  };
  while (direct > 0 && end(direct) + RowSink::kSlack > pixels.size()) --direct;
  emit_rows(sink, pixels.data() + start, stride, direct);
  if (direct == roi.height) return;
  const auto rest = static_cast<size_t>(roi.height - direct);
  uint8_t* const copy = reserve_scratch(scratch, rest * row_bytes + RowSink::kSlack);
  for (size_t y = 0; y < rest; ++y) {
    const uint8_t* from = pixels.data() + start + (static_cast<size_t>(direct) + y) * stride;
    std::copy_n(from, row_bytes, copy + y * row_bytes);
  }
  emit_rows(sink, copy, row_bytes, static_cast<int>(rest), direct);
}

}  // namespace fastload
