// The last step: chooses the kernel and the place of each row.
#include "transform/store.h"

#include <cmath>
#include <string>

#include "base/error.h"
#include "transform/store_kernels.h"

namespace fastload {

size_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
      return 1;
    case DType::kFloat16:
    case DType::kBfloat16:
    case DType::kUint16:
      return 2;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
  }
  return 0;
}

const StoreKernels& store_kernels(SimdLevel level) {
  return FASTLOAD_KERNEL_AT(level, kStore);
}

namespace {

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::kValue, what); }

// Whether the dtype holds the values at all.
void check_dtype(const StoreSpec& spec, const PixelFormat& format) {
  const bool scaled = spec.scale || spec.normalize;
  const bool wide = format.bits == 16;
  switch (spec.dtype) {
    case DType::kUint8:
      if (scaled) {
        refuse("uint8 takes neither scale nor normalize. Choose float16, bfloat16 or float32.");
      }
      if (wide) refuse("uint8 does not hold " + format_text(format) + ". Choose uint16 or int32.");
      return;
    case DType::kUint16:
    case DType::kInt32:
      if (scaled) {
        refuse("uint16 and int32 take neither scale nor normalize. Choose float32.");
      }
      return;
    case DType::kFloat16:
      if (wide && !scaled) {
        refuse("float16 ends at 65504, below values of 16 bits. Choose float32, or scale.");
      }
      [[fallthrough]];
    case DType::kBfloat16:
    case DType::kFloat32:
      if (format.ids) refuse("Ids are no numbers to count with. Choose uint8, uint16 or int32.");
  }
}

}  // namespace

std::vector<ChannelScale> channel_scales(const StoreSpec& spec, const PixelFormat& format) {
  check_format(format);
  check_dtype(spec, format);
  const auto channels = static_cast<size_t>(format.channels);
  if (spec.normalize && (spec.mean.size() != channels || spec.std.size() != channels)) {
    refuse("mean and std must have a value for each channel, " + std::to_string(channels) +
           ". Found: " + std::to_string(spec.mean.size()) + " and " +
           std::to_string(spec.std.size()) + ".");
  }
  const double range = !spec.scale && !spec.normalize ? 1.0 : format.bits == 16 ? 65535.0 : 255.0;
  std::vector<ChannelScale> scales(channels);
  for (size_t c = 0; c < channels; ++c) {
    const double mean = spec.normalize ? spec.mean[c] : 0.0;
    const double std = spec.normalize ? spec.std[c] : 1.0;
    scales[c] = {static_cast<float>(1.0 / (range * std)), static_cast<float>(-mean / std)};
    if (!std::isfinite(scales[c].a) || !std::isfinite(scales[c].b)) {
      refuse("mean must be finite, std finite and not 0. Found: mean " + std::to_string(mean) +
             ", std " + std::to_string(std) + " for channel " + std::to_string(c) + ".");
    }
  }
  return scales;
}

StorePlace dense_place(StorePlace place, const StoreSpec& spec, size_t channels, int width,
                       int height) {
  const size_t row = dtype_size(spec.dtype) * static_cast<size_t>(width);
  if (place.row_bytes == 0) place.row_bytes = spec.channels_last ? row * channels : row;
  if (place.plane_bytes == 0) place.plane_bytes = place.row_bytes * static_cast<size_t>(height);
  const size_t size = dtype_size(spec.dtype);
  if (place.row_bytes % size != 0 || place.plane_bytes % size != 0) {
    refuse("Rows and channels must lie a multiple of " + std::to_string(size) +
           " bytes apart. Found: " + std::to_string(place.row_bytes) + " and " +
           std::to_string(place.plane_bytes) + ".");
  }
  return place;
}

Store::Store(const StoreSpec& spec) : spec_(spec) {
  if (spec.dtype > DType::kFloat32) {
    refuse("RGB pictures of 8 bits are stored as uint8, float16, bfloat16 or float32.");
  }
  const std::vector<ChannelScale> scales = channel_scales(spec, PixelFormat{});
  for (size_t i = 0; i < StoreScale::kLength; ++i) {
    scale_.a[i] = scales[i % 3].a;
    scale_.b[i] = scales[i % 3].b;
  }
}

void Store::begin(const StorePlace& place, int width, int height) {
  place_ = dense_place(place, spec_, 3, width, height);
  width_ = width;
  height_ = height;
}

void Store::rows(const uint8_t* pixels, size_t stride, int y, int count) {
  if (place_.data == nullptr || y < 0 || count < 0 || count > height_ - y) {
    throw Error(ErrorKind::kState, "Rows must be in [0, " + std::to_string(height_) +
                                       "). Found: " + std::to_string(count) + " rows from " +
                                       std::to_string(y) + ".");
  }
  const StoreLine line = store_kernels(simd_level())[static_cast<size_t>(spec_.dtype)];
  const size_t width = static_cast<size_t>(width_);
  const size_t plane = spec_.channels_last ? 0 : place_.plane_bytes / dtype_size(spec_.dtype);
  auto* to = static_cast<uint8_t*>(place_.data) + place_.row_bytes * static_cast<size_t>(y);
  for (int i = 0; i < count; ++i) {
    line(pixels + stride * i, width, scale_, to, plane);
    to += place_.row_bytes;
  }
}

}  // namespace fastload
