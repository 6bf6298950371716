// Store, a step of pixels at a time. Product and sum are rounded apart, so that the bits agree.
//
// DESIGN. A line's last step ends with its last pixel: it may do some pixels again, with the same
// result. A line shorter than a step is done elsewhere, as one.
#include <cstring>
#include <type_traits>

#include "transform/half_floats.h"
#include "transform/store_kernels.h"
// Behind the others:
#include "base/highway.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

using FloatsTag = hn::ScalableTag<float>;
constexpr FloatsTag kFloats{};
constexpr hn::ScalableTag<int32_t> kInts{};
constexpr hn::ScalableTag<uint8_t> kBytes{};
using Float = hn::Vec<FloatsTag>;
using Int = hn::Vec<hn::ScalableTag<int32_t>>;
using Bytes = hn::Vec<hn::ScalableTag<uint8_t>>;

constexpr size_t kLanes = hn::MaxLanes(kFloats);
// Of a step of numbers: in float32, a line of the cache for each channel.
constexpr size_t kPixels = 16;
// Of a step of split(), and of its last ones. AVX2 takes long to bring vectors' halves into order.
constexpr size_t kMostBytes = HWY_TARGET == HWY_AVX3 ? 64 : 16;
constexpr size_t kBytePixels = HWY_TARGET == HWY_AVX3 ? 32 : 16;
static_assert(3 * kLanes <= StoreScale::kLength && kPixels % kLanes == 0);

struct Float32 {
  using Element = float;
  static void store(Element* to, Float value) { hn::StoreU(value, kFloats, to); }
};
struct Float16 {
  using Element = uint16_t;
  static void store(Element* to, Float value) {
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_EMU128  // whose DemoteTo does not round
    float all[kLanes];
    hn::StoreU(value, kFloats, all);
    for (size_t i = 0; i < kLanes; ++i) to[i] = to_float16(all[i]);
#else
    constexpr hn::Rebind<uint16_t, FloatsTag> kHalves{};
    constexpr hn::Rebind<hwy::float16_t, FloatsTag> kFloat16{};
    hn::StoreU(hn::BitCast(kHalves, hn::DemoteTo(kFloat16, value)), kHalves, to);
#endif
  }
};
struct Bfloat16 {
  using Element = uint16_t;
  static void store(Element* to, Float value) {
    hn::StoreU(to_bfloat16(kFloats, value), hn::Rebind<uint16_t, FloatsTag>(), to);
  }
};

Float scaled(Int x, Float a, Float b) {
  return hn::Add(hn::Mul(hn::ConvertTo(kFloats, x), a), b);
}

// Calls step(i) for pixels i .. i + Step - 1 until all `pixels`, at least Step, are done.
template <size_t Step, typename Do>
void for_steps(size_t begin, size_t pixels, const Do& step) {
  size_t i = begin;
  for (; i + Step <= pixels; i += Step) step(i);
  if (i < pixels) step(pixels - Step);
}

template <typename Format>
void interleaved(const uint8_t* in, size_t pixels, const StoreScale& scale,
                 typename Format::Element* to) {
  constexpr hn::Rebind<uint8_t, FloatsTag> kSome{};
  const auto third = [](const auto& of, size_t v) {
    return hn::LoadU(kFloats, of.data() + kLanes * v);
  };
  const Float a[] = {third(scale.a, 0), third(scale.a, 1), third(scale.a, 2)};
  const Float b[] = {third(scale.b, 0), third(scale.b, 1), third(scale.b, 2)};
  const auto step = [&](size_t pixel, const auto& store) {
    for (size_t v = 0, at = 3 * pixel; v < 3; ++v, at += kLanes) {
      store(to + at, scaled(hn::PromoteTo(kInts, hn::LoadU(kSome, in + at)), a[v], b[v]));
    }
  };
  size_t i = 0;
  if constexpr (std::is_same_v<Format, Float32>) {
    if (reinterpret_cast<uintptr_t>(to) % sizeof(Float) == 0) {
      // Past the caches: the batch is read by others, much later, and a line that is written whole
      // need not be read first. The locked instruction in Batch::finish() orders these stores.
      for (; i + kLanes <= pixels; i += kLanes) {
        step(i, [](float* at, Float value) { hn::Stream(value, kFloats, at); });
      }
    }
  }
  for_steps<kLanes>(i, pixels, [&](size_t pixel) { step(pixel, Format::store); });
}

// One channel of kLanes pixels, by its index.
#if HWY_TARGET == HWY_AVX3  // one instruction, across the whole vector
constexpr int32_t kThirds[] = {0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45};
Bytes load_pixels(const uint8_t* in) { return hn::LoadU(kBytes, in); }
Int channel(Bytes pixels, Int index) {
  return Int{_mm512_maskz_permutexvar_epi8(0x1111111111111111, index.raw, pixels.raw)};
}
#else  // four pixels in each 16 bytes
constexpr int32_t kThirds[] = {0, 3, 6, 9, 0, 3, 6, 9};
Bytes load_pixels(const uint8_t* in) {
#if HWY_TARGET == HWY_AVX2
  constexpr hn::Half<hn::ScalableTag<uint8_t>> kHalf{};
  return hn::Combine(kBytes, hn::LoadU(kHalf, in + 12), hn::LoadU(kHalf, in));
#else
  return hn::LoadU(kBytes, in);
#endif
}
Int channel(Bytes pixels, Int index) {
  return hn::BitCast(kInts, hn::TableLookupBytesOr0(pixels, hn::BitCast(kBytes, index)));
}
#endif

template <typename Format>
void planar(const uint8_t* in, size_t pixels, const StoreScale& scale, typename Format::Element* to,
            size_t plane) {
  constexpr uint32_t kLowByte = 0x80808000;  // the others of a word are 0
  Int index[3];
  Float a[3], b[3];
  for (size_t c = 0; c < 3; ++c) {
    const auto first = static_cast<int32_t>(kLowByte + c);
    index[c] = hn::Add(hn::LoadU(kInts, kThirds), hn::Set(kInts, first));
    a[c] = hn::Set(kFloats, scale.a[c]);
    b[c] = hn::Set(kFloats, scale.b[c]);
  }
  for_steps<kPixels>(0, pixels, [&](size_t i) {
    Bytes from[kPixels / kLanes];
    for (size_t v = 0; v < kPixels / kLanes; ++v) from[v] = load_pixels(in + 3 * (i + kLanes * v));
    for (size_t c = 0; c < 3; ++c) {
      auto* at = to + c * plane + i;
      for (const Bytes& some : from) {
        Format::store(at, scaled(channel(some, index[c]), a[c], b[c]));
        at += kLanes;
      }
    }
  });
}

// Fewer pixels than a step of `line`.
template <size_t Step, typename Element>
HWY_NOINLINE void short_line(StoreLine line, const uint8_t* in, size_t pixels,
                             const StoreScale& scale, Element* to, size_t plane) {
  uint8_t from[3 * Step + RowSink::kSlack] = {};
  Element done[3 * Step];
  std::memcpy(from, in, 3 * pixels);
  line(from, Step, scale, done, plane == 0 ? 0 : Step);
  const size_t bytes = pixels * sizeof(Element);
  if (plane == 0) return static_cast<void>(std::memcpy(to, done, 3 * bytes));
  for (size_t c = 0; c < 3; ++c) std::memcpy(to + c * plane, done + c * Step, bytes);
}

template <typename Format>
void line(const uint8_t* in, size_t pixels, const StoreScale& scale, void* out, size_t plane) {
  auto* to = static_cast<typename Format::Element*>(out);
  if (pixels < kPixels) {
    short_line<kPixels>(line<Format>, in, pixels, scale, to, plane);
  } else if (plane == 0) {
    interleaved<Format>(in, pixels, scale, to);
  } else {
    planar<Format>(in, pixels, scale, to, plane);
  }
}

template <size_t Pixels>
void split_step(const uint8_t* in, uint8_t* to, size_t plane) {
  constexpr hn::CappedTag<uint8_t, Pixels> kTag{};
  hn::Vec<hn::CappedTag<uint8_t, Pixels>> red, green, blue;
  hn::LoadInterleaved3(kTag, in, red, green, blue);
  hn::StoreU(red, kTag, to);
  hn::StoreU(green, kTag, to + plane);
  hn::StoreU(blue, kTag, to + 2 * plane);
}

void split(const uint8_t* in, size_t pixels, const StoreScale& scale, void* out, size_t plane) {
  auto* to = static_cast<uint8_t*>(out);
  if (plane == 0) return static_cast<void>(std::memcpy(to, in, 3 * pixels));
  if (pixels < kBytePixels) {
    return short_line<kBytePixels>(split, in, pixels, scale, to, plane);
  }
  size_t first = 0;
  for (; first + kMostBytes <= pixels; first += kMostBytes) {
    split_step<kMostBytes>(in + 3 * first, to + first, plane);
  }
  for_steps<kBytePixels>(first, pixels, [&](size_t i) {
    split_step<kBytePixels>(in + 3 * i, to + i, plane);
  });
}

}  // namespace

const StoreKernels kStore{split, line<Float16>, line<Bfloat16>, line<Float32>};

}  // namespace fastload::FASTLOAD_LEVEL
