// The table's numbers made by arithmetic, V::kLanes at a time. A gather takes a load for each lane,
// and two divisions are as slow; products and sums that are rounded once (FMA) give the same bits,
// by Markstein's way to divide: with the quotient's rest, from the divisor's reciprocal. That holds
// but for rare divisors, so VisionValues tries all 256 bytes beforehand, and the scalar code stands
// in where one differs. Included by one source file for each instruction set, which names its
// vector operations in a type V; everything here has internal linkage.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "vision/values.h"

namespace fastload {
namespace {

template <class V>
struct Constants {
  typename V::Float high, low, mean, std, inverse;

  // From the channel of element `at` on.
  Constants(const ValueScale& scale, size_t at)
      : high(V::load(scale.high.data())),
        low(V::load(scale.low.data())),
        mean(V::load(scale.mean.data() + at)),
        std(V::load(scale.std.data() + at)),
        inverse(V::load(scale.inverse.data() + at)) {}

  typename V::Float value(typename V::Float x) const {
    const auto rescaled = V::fma(x, high, V::mul(x, low));
    const auto away = V::sub(rescaled, mean);
    const auto quotient = V::mul(away, inverse);
    return V::fma(V::rest(quotient, std, away), inverse, quotient);
  }
};

// Number `copy` of a run's copies, and all of them.
template <class Format, class V, typename Put>
void each_copy(typename Format::Element* to, const ValueRuns& runs, const Put& put) {
  put(to);
  for (size_t copy = 1; copy < runs.copies; ++copy) put(to + copy * runs.copy_apart);
}

// The bytes from i on of a run.
template <class V, class Format>
void step(const uint8_t* in, const ValueRuns& runs, const Constants<V>& constants, size_t i,
          typename Format::Element* to) {
  const auto value = constants.value(V::widened(in + i));
  each_copy<Format, V>(to + i, runs, [&](auto* at) { Format::store(at, value); });
}

// A run of one channel.
template <class V, class Format>
void plane_run(const uint8_t* in, const ValueRuns& runs, const Constants<V>& constants,
               typename Format::Element* to) {
  const size_t length = runs.length, rest = length % V::kLanes;
  size_t i = 0;
  for (; i + V::kLanes <= length; i += V::kLanes) step<V, Format>(in, runs, constants, i, to);
  if (rest == 0) return;
  if (i > 0) {  // some once more, with the same result
    step<V, Format>(in, runs, constants, length - V::kLanes, to);
    return;
  }
  const auto value = constants.value(V::widened(in));
  each_copy<Format, V>(to, runs, [&](auto* at) { Format::store_some(at, value, rest); });
}

// One channel.
template <class V, class Format>
void plane(const uint8_t* in, const ValueRuns& runs, const ValueScale& scale,
           typename Format::Element* out) {
  const Constants<V> constants(scale, 0);
  for (size_t j = 0; j < runs.count; ++j, in += runs.length) {
    auto* to = out + runs.place(j);
    for (size_t line = 0; line < runs.lines; ++line, to += runs.length) {
      plane_run<V, Format>(in + line * runs.line_apart, runs, constants, to);
    }
  }
}

// A run of three channels in turn.
template <class V, class Format>
void interleaved_run(const uint8_t* in, const ValueRuns& runs, const Constants<V>* constants,
                     typename Format::Element* to) {
  const size_t length = runs.length, rest = length % V::kLanes;
  size_t i = 0, turn = 0;
  for (; i + V::kLanes <= length; i += V::kLanes) {
    step<V, Format>(in, runs, constants[turn], i, to);
    turn = turn == 2 ? 0 : turn + 1;
  }
  if (rest == 0) return;
  const auto value = constants[turn].value(V::widened(in + i));
  each_copy<Format, V>(to + i, runs, [&](auto* at) { Format::store_some(at, value, rest); });
}

// Three channels in turn.
template <class V, class Format>
void interleaved(const uint8_t* in, const ValueRuns& runs, const ValueScale& scale,
                 typename Format::Element* out) {
  const Constants<V> constants[] = {
      {scale, 0}, {scale, V::kLanes % 3}, {scale, (2 * V::kLanes) % 3}};
  for (size_t j = 0; j < runs.count; ++j, in += runs.length) {
    auto* to = out + runs.place(j);
    for (size_t line = 0; line < runs.lines; ++line, to += runs.length) {
      interleaved_run<V, Format>(in + line * runs.line_apart, runs, constants, to);
    }
  }
}

template <class V, class Format>
void lines(const uint8_t* in, const ValueRuns& runs, const ValueScale& scale, void* out) {
  auto* const to = static_cast<typename Format::Element*>(out);
  scale.channels == 1 ? plane<V, Format>(in, runs, scale, to)
                      : interleaved<V, Format>(in, runs, scale, to);
}

// Whole lines of the cache by V::stream(), what is around them as ever.
template <class V>
void stream(const uint8_t* from, size_t bytes, uint8_t* to) {
  constexpr size_t kLine = 64;
  const size_t before = std::min((kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine, bytes);
  std::memcpy(to, from, before);
  size_t i = before;
  for (; i + kLine <= bytes; i += kLine) V::stream(from + i, to + i);
  std::memcpy(to + i, from + i, bytes - i);
}

}  // namespace
}  // namespace fastload
