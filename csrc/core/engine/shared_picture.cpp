#include "engine/shared_picture.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "decode/cost.h"
#include "decode/rows.h"

namespace fastload {
namespace {

// Nanoseconds a byte, as in decode/cost.cpp: writing the rows and reading them again; and the pages
// of memory that is too much to be kept between pictures.
constexpr double kCopied = 0.1;
constexpr double kFresh = 0.3;

}  // namespace

Rect around(std::span<const Rect> parts) {
  Rect all = parts.front();
  for (const Rect& part : parts) {
    const int right = std::max(all.x + all.width, part.x + part.width);
    const int bottom = std::max(all.y + all.height, part.y + part.height);
    all.x = std::min(all.x, part.x);
    all.y = std::min(all.y, part.y);
    all.width = right - all.x;
    all.height = bottom - all.y;
  }
  return all;
}

bool pays_once(const ImageInfo& info, size_t bytes, std::span<const Rect> parts,
               const EntryPoints& entries, size_t pixel_bytes) {
  double apart = 0.0;
  for (const Rect& part : parts) apart += decode_cost(info, bytes, part, entries);
  const Rect all = around(parts);
  const double kept =
      static_cast<double>(all.width) * all.height * static_cast<double>(pixel_bytes);
  const double writing = kCopied + (kept > static_cast<double>(kKeepScratch) ? kFresh : 0.0);
  return decode_cost(info, bytes, all, entries) + kept * writing < apart;
}

void SharedPicture::begin(Rect area, size_t pixel_bytes) {
  area_ = area;
  pixel_bytes_ = pixel_bytes;
  stride_ = static_cast<size_t>(area.width) * pixel_bytes;
  reserve_scratch(pixels_, stride_ * static_cast<size_t>(area.height) + kSlack);
}

void SharedPicture::rows(const uint8_t* pixels, size_t stride, int y, int count) {
  uint8_t* to = pixels_.data() + static_cast<size_t>(y) * stride_;
  for (int i = 0; i < count; ++i, pixels += stride, to += stride_) {
    std::memcpy(to, pixels, stride_);
  }
}

void SharedPicture::restart() { throw Error(ErrorKind::kDecode, "damaged somewhere"); }

void SharedPicture::give(Rect part, RowSink& sink) const {
  const auto x = static_cast<size_t>(part.x - area_.x), y = static_cast<size_t>(part.y - area_.y);
  emit_rows(sink, pixels_.data() + y * stride_ + x * pixel_bytes_, stride_, part.height);
}

void SharedPicture::trim() { trim_scratch(pixels_); }

}  // namespace fastload
