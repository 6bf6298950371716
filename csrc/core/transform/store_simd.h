// Store, a step of V::kPixels pixels at a time: product and sum rounded apart, as in
// store_scalar.cpp, so that the bits agree. Included by one source file for each instruction set,
// which names its vector operations in a type V; everything here has internal linkage.
//
// DESIGN. A line's last step ends with its last pixel: it may do some pixels again, with the same
// result, so only lines shorter than a step are left to the scalar code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "transform/store_kernels.h"

namespace fastload {
namespace {

// Calls step(i) for pixels i .. i + Step - 1 until all `pixels`, at least Step, are done.
template <size_t Step, typename Do>
void for_steps(size_t begin, size_t pixels, const Do& step) {
  size_t i = begin;
  for (; i + Step <= pixels; i += Step) step(i);
  if (i < pixels) step(pixels - Step);
}

template <class V, typename Format>
void interleaved(const uint8_t* in, size_t pixels, const StoreScale& scale,
                 typename Format::Element* to) {
  constexpr size_t kVectors = 3 * V::kPixels / V::kLanes;
  static_assert(3 * V::kPixels <= StoreScale::kLength);
  typename V::Float a[kVectors];
  typename V::Float b[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    a[v] = V::load(scale.a.data() + V::kLanes * v);
    b[v] = V::load(scale.b.data() + V::kLanes * v);
  }
  const auto value = [&](size_t at, size_t v) {
    return V::scaled(V::widened(in + at), a[v], b[v]);
  };
  size_t i = 0;
  if constexpr (std::is_same_v<Format, typename V::Float32> && V::kStreamed > 0) {
    if (reinterpret_cast<uintptr_t>(to) % V::kStreamed == 0) {
      // Past the caches: the batch is read by others, much later, and a line that is written whole
      // need not be read first. The locked instruction in Batch::finish() orders these stores.
      for (; i + V::kPixels <= pixels; i += V::kPixels) {
        for (size_t v = 0, at = 3 * i; v < kVectors; ++v, at += V::kLanes) {
          V::stream(to + at, value(at, v));
        }
      }
    }
  }
  for_steps<V::kPixels>(i, pixels, [&](size_t pixel) {
    for (size_t v = 0, at = 3 * pixel; v < kVectors; ++v, at += V::kLanes) {
      Format::store(to + at, value(at, v));
    }
  });
}

template <class V, typename Format>
void planar(const uint8_t* in, size_t pixels, const StoreScale& scale, typename Format::Element* to,
            size_t plane) {
  typename V::Float a[3];
  typename V::Float b[3];
  for (size_t c = 0; c < 3; ++c) {
    a[c] = V::set(scale.a[c]);
    b[c] = V::set(scale.b[c]);
  }
  for_steps<V::kLanes>(0, pixels, [&](size_t i) {
    const auto split = V::channels(in + 3 * i);
    for (size_t c = 0; c < 3; ++c) {
      Format::store(to + c * plane + i, V::scaled(V::channel(split, c), a[c], b[c]));
    }
  });
}

template <class V, typename Format, DType Type>
void line(const uint8_t* in, size_t pixels, const StoreScale& scale, void* out, size_t plane) {
  auto* to = static_cast<typename Format::Element*>(out);
  if (pixels < V::kPixels) {
    kScalarStore[static_cast<size_t>(Type)](in, pixels, scale, to, plane);
  } else if (plane == 0) {
    interleaved<V, Format>(in, pixels, scale, to);
  } else {
    planar<V, Format>(in, pixels, scale, to, plane);
  }
}

template <class V>
void line_uint8(const uint8_t* in, size_t pixels, const StoreScale& scale, void* out,
                size_t plane) {
  auto* to = static_cast<uint8_t*>(out);
  if (plane == 0) {
    std::memcpy(to, in, 3 * pixels);
  } else if (pixels < V::kBytePixels) {
    kScalarStore[static_cast<size_t>(DType::kUint8)](in, pixels, scale, to, plane);
  } else {
    for_steps<V::kBytePixels>(0, pixels,
                              [&](size_t i) { V::split_bytes(in + 3 * i, to + i, plane); });
  }
}

template <class V>
constexpr StoreKernels store_lines() {
  return {line_uint8<V>, line<V, typename V::Float16, DType::kFloat16>,
          line<V, typename V::Bfloat16, DType::kBfloat16>,
          line<V, typename V::Float32, DType::kFloat32>};
}

}  // namespace
}  // namespace fastload
