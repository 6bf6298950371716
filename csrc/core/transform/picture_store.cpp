#include "transform/picture_store.h"

#include <cstring>
#include <string>

#include "base/error.h"
#include "transform/half_floats.h"
#include "transform/store_kernels.h"

namespace fastload {
namespace {

float to_float32(float value) { return value; }

template <typename T>
T load(const uint8_t* from, size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}

// The place of a batch is aligned to its dtype only where the layout says so.
template <typename T>
void save(T value, uint8_t* to, size_t i) {
  std::memcpy(to + i * sizeof(T), &value, sizeof(T));
}

// `plane` 0: interleaved; else the bytes from one channel to the next.
template <typename In, typename Out, typename Convert>
void line(const uint8_t* from, size_t pixels, const std::vector<ChannelScale>& scales, uint8_t* to,
          size_t plane, Convert convert) {
  const size_t channels = scales.size();
  const size_t step = plane == 0 ? channels : 1;
  const size_t next = plane == 0 ? sizeof(Out) : plane;
  if (channels == 1) {  // a loop that compilers vectorise
    const ChannelScale scale = scales[0];
    for (size_t i = 0; i < pixels; ++i) save<Out>(convert(load<In>(from, i), scale), to, i);
    return;
  }
  for (size_t c = 0; c < channels; ++c) {
    const ChannelScale scale = scales[c];
    uint8_t* const out = to + c * next;
    for (size_t i = 0; i < pixels; ++i) {
      save<Out>(convert(load<In>(from, i * channels + c), scale), out, i * step);
    }
  }
}

template <typename In, typename Out>
void kept(const uint8_t* from, size_t pixels, const std::vector<ChannelScale>& scales, uint8_t* to,
          size_t plane) {
  if (sizeof(In) == sizeof(Out) && (plane == 0 || scales.size() == 1)) {
    std::memcpy(to, from, pixels * scales.size() * sizeof(In));
    return;
  }
  line<In, Out>(from, pixels, scales, to, plane,
                [](In value, ChannelScale) { return static_cast<Out>(value); });
}

template <typename In, typename Out, Out (*Round)(float)>
void scaled(const uint8_t* from, size_t pixels, const std::vector<ChannelScale>& scales,
            uint8_t* to, size_t plane) {
  line<In, Out>(from, pixels, scales, to, plane, [](In value, ChannelScale scale) {
    return Round(static_cast<float>(value) * scale.a + scale.b);
  });
}

}  // namespace

template <typename In>
PictureStore::Line PictureStore::line_of(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
      return kept<In, uint8_t>;
    case DType::kUint16:
      return kept<In, uint16_t>;
    case DType::kInt32:
      return kept<In, int32_t>;
    case DType::kFloat16:
      return scaled<In, uint16_t, to_float16>;
    case DType::kBfloat16:
      return scaled<In, uint16_t, to_bfloat16>;
    case DType::kFloat32:
      return scaled<In, float, to_float32>;
  }
  return nullptr;
}

PictureStore::PictureStore(const StoreSpec& spec, const PixelFormat& format)
    : spec_(spec),
      format_(format),
      scales_(channel_scales(spec, format)),
      line_(format.bits == 16 ? line_of<uint16_t>(spec.dtype) : line_of<uint8_t>(spec.dtype)),
      is_gray_(format.pixel_bytes() == 1 && spec.dtype <= DType::kFloat32) {
  gray_.a.fill(scales_[0].a);
  gray_.b.fill(scales_[0].b);
}

// As many pixels as make whole ones of three channels; the kernel does not see the difference.
void PictureStore::gray_line(const uint8_t* from, uint8_t* to) const {
  const auto width = static_cast<size_t>(width_);
  const size_t done = width / 3 * 3;
  store_kernels(simd_level())[static_cast<size_t>(spec_.dtype)](from, done / 3, gray_, to, 0);
  line_(from + done, width - done, scales_, to + done * dtype_size(spec_.dtype), 0);
}

void PictureStore::begin(const StorePlace& place, int width, int height) {
  place_ = dense_place(place, spec_, scales_.size(), width, height);
  width_ = width;
  height_ = height;
}

void PictureStore::rows(const uint8_t* pixels, size_t stride, int y, int count) {
  if (place_.data == nullptr || y < 0 || count < 0 || count > height_ - y) {
    throw Error(ErrorKind::kState, "Rows must be in [0, " + std::to_string(height_) +
                                       "). Found: " + std::to_string(count) + " rows from " +
                                       std::to_string(y) + ".");
  }
  const size_t plane = spec_.channels_last ? 0 : place_.plane_bytes;
  auto* to = static_cast<uint8_t*>(place_.data) + place_.row_bytes * static_cast<size_t>(y);
  for (int i = 0; i < count; ++i, to += place_.row_bytes) {
    const uint8_t* const from = pixels + stride * static_cast<size_t>(i);
    if (is_gray_) {
      gray_line(from, to);
      continue;
    }
    line_(from, static_cast<size_t>(width_), scales_, to, plane);
  }
}

}  // namespace fastload
