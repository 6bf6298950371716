// The table's numbers made by arithmetic, a vector at a time. A gather takes a load for each lane,
// and two divisions are as slow; products and sums that are rounded once (FMA) give the same bits,
// by Markstein's way to divide: with the quotient's rest, from the divisor's reciprocal. That holds
// but for rare divisors, so VisionValues tries all 256 bytes beforehand, and where one differs they
// are looked up, as at levels without FMA.
#include <algorithm>
#include <cstring>

#include "vision/values.h"
// Behind the others:
#include "base/highway.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

#if HWY_NATIVE_FMA

using FloatsTag = hn::ScalableTag<float>;
constexpr FloatsTag kFloats{};
using Float = hn::Vec<FloatsTag>;
constexpr size_t kLanes = hn::MaxLanes(kFloats);
static_assert(kLanes + 2 <= ValueScale::kLength);

struct Float32 {
  using Element = float;
  static constexpr FloatsTag kTag{};
  static Float of(Float value) { return value; }
};
struct Bfloat16 {
  using Element = uint16_t;
  static constexpr hn::Rebind<uint16_t, FloatsTag> kTag{};
  static auto of(Float value) { return to_bfloat16(kFloats, value); }
};

struct Constants {
  Float high, low, mean, std, inverse;

  // From the channel of element `at` on.
  Constants(const ValueScale& scale, size_t at)
      : high(hn::LoadU(kFloats, scale.high.data())),
        low(hn::LoadU(kFloats, scale.low.data())),
        mean(hn::LoadU(kFloats, scale.mean.data() + at)),
        std(hn::LoadU(kFloats, scale.std.data() + at)),
        inverse(hn::LoadU(kFloats, scale.inverse.data() + at)) {}

  [[nodiscard]] Float values(const uint8_t* in) const {
    const auto bytes = hn::LoadU(hn::Rebind<uint8_t, FloatsTag>(), in);
    const Float x = hn::ConvertTo(kFloats, hn::PromoteTo(hn::RebindToSigned<FloatsTag>(), bytes));
    const Float rescaled = hn::MulAdd(x, high, hn::Mul(x, low));
    const Float away = hn::Sub(rescaled, mean);
    const Float quotient = hn::Mul(away, inverse);
    return hn::MulAdd(hn::NegMulAdd(quotient, std, away), inverse, quotient);
  }
};

// The first `count`, and nothing behind them.
template <class D, class V = hn::Vec<D>, class T = hn::TFromD<D>>
void store_some(D d, V value, size_t count, T* to) {
  if constexpr (HWY_TARGET == HWY_AVX3 || (HWY_TARGET == HWY_AVX2 && sizeof(T) == 4)) {
    hn::BlendedStore(value, hn::FirstN(d, count), d, to);
  } else {
    T all[kLanes];
    hn::StoreU(value, d, all);
    std::memcpy(to, all, count * sizeof(T));
  }
}

// What a run has of ValueRuns, where stores cannot change it.
struct Run {
  size_t length, copies, copy_apart;

  // Calls put(to) for each copy.
  template <typename Element, typename Put>
  HWY_INLINE void each_copy(Element* to, const Put& put) const {
    put(to);
    for (size_t copy = 1; copy < copies; ++copy) put(to + copy * copy_apart);
  }
};

// A run of one channel, or of three in turn; `last` is of its last kLanes bytes.
template <typename Format, size_t Channels>
HWY_INLINE void write(const uint8_t* in, const Run run, const Constants* constants,
                      const Constants& last, typename Format::Element* to) {
  const auto step = [&](const Constants& with, size_t i) {
    const auto values = Format::of(with.values(in + i));
    run.each_copy(to + i, [&](auto* at) { hn::StoreU(values, Format::kTag, at); });
  };
  const size_t whole = run.length / kLanes * kLanes;
  for (size_t i = 0, turn = 0; i < whole; i += kLanes) {
    step(constants[turn], i);
    turn = turn + 1 == Channels ? 0 : turn + 1;
  }
  if (whole == run.length) return;
  if (whole > 0) return step(last, run.length - kLanes);  // some once more, with the same result
  const auto values = Format::of(constants[0].values(in));
  run.each_copy(to, [&](auto* at) { store_some(Format::kTag, values, run.length, at); });
}

template <typename Format, size_t Channels>
void all_runs(const uint8_t* in, const ValueRuns& runs, const ValueScale& scale,
              typename Format::Element* out) {
  const Constants constants[] = {{scale, 0}, {scale, kLanes % 3}, {scale, 2 * kLanes % 3}};
  const Run run{runs.length, runs.copies, runs.copy_apart};
  const size_t end = run.length < kLanes ? 0 : run.length - kLanes;
  const Constants last(scale, Channels == 1 ? 0 : end % 3);
  for (size_t j = 0; j < runs.count; ++j, in += run.length) {
    auto* to = out + runs.place(j);
    for (size_t line = 0; line < runs.lines; ++line, to += run.length) {
      write<Format, Channels>(in + line * runs.line_apart, run, constants, last, to);
    }
  }
}

template <typename Format>
void lines(const uint8_t* in, const ValueRuns& runs, const ValueScale& scale, void* out) {
  auto* const to = static_cast<typename Format::Element*>(out);
  scale.channels == 1 ? all_runs<Format, 1>(in, runs, scale, to)
                      : all_runs<Format, 3>(in, runs, scale, to);
}

constexpr ValueLine kFloat32 = lines<Float32>, kBfloat16 = lines<Bfloat16>;
#else
constexpr ValueLine kFloat32 = look_up_float32, kBfloat16 = look_up_bfloat16;
#endif

// Whole lines of the cache past it, what is around them as ever.
void stream(const uint8_t* from, size_t bytes, uint8_t* to) {
  constexpr hn::ScalableTag<uint8_t> kBytes{};
  constexpr size_t kLine = 64;
  const size_t before = std::min((kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine, bytes);
  std::memcpy(to, from, before);
  size_t i = before;
  for (; i + kLine <= bytes; i += kLine) {
    for (size_t at = i; at < i + kLine; at += hn::MaxLanes(kBytes)) {
      hn::Stream(hn::LoadU(kBytes, from + at), kBytes, to + at);
    }
  }
  std::memcpy(to + i, from + i, bytes - i);
}

}  // namespace

const ValueKernels kValues{kFloat32, kBfloat16, stream};

}  // namespace fastload::FASTLOAD_LEVEL
