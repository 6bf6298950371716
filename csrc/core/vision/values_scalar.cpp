// The table looked up, byte by byte: the reference for the other kernels.
#include <cstring>

#include "transform/half_floats.h"
#include "vision/values.h"

namespace fastload {
namespace {

float to_float32(float value) { return value; }

template <typename T, T (*Convert)(float)>
void look_up(const uint8_t* in, const ValueRuns& runs, const ValueScale& scale, void* out) {
  for (size_t j = 0; j < runs.count; ++j) {
    T* to = static_cast<T*>(out) + runs.place(j);
    for (size_t line = 0; line < runs.lines; ++line, to += runs.length) {
      const uint8_t* const from = in + line * runs.line_apart + j * runs.length;
      for (size_t i = 0; i < runs.length; ++i) {
        const T value = Convert(scale.table[i % scale.channels][from[i]]);
        for (size_t copy = 0; copy < runs.copies; ++copy) to[copy * runs.copy_apart + i] = value;
      }
    }
  }
}

// Of 8 to 16 bytes, as a patch's line has, without a call.
void copy_short(const uint8_t* in, size_t length, uint8_t* to) {
  uint64_t front, back;
  std::memcpy(&front, in, sizeof(front));
  std::memcpy(&back, in + length - sizeof(back), sizeof(back));
  std::memcpy(to, &front, sizeof(front));
  std::memcpy(to + length - sizeof(back), &back, sizeof(back));
}

}  // namespace

const ValueKernels kScalarValues{look_up<float, to_float32>, look_up<uint16_t, to_bfloat16>,
                                 copy_bytes};

void copy_bytes(const uint8_t* from, size_t bytes, uint8_t* to) { std::memcpy(to, from, bytes); }

void copy_runs(const uint8_t* in, const ValueRuns& runs, const ValueScale&, void* out) {
  const bool is_short = runs.length >= 8 && runs.length <= 16;
  for (size_t j = 0; j < runs.count; ++j) {
    uint8_t* first = static_cast<uint8_t*>(out) + runs.place(j);
    for (size_t line = 0; line < runs.lines; ++line, first += runs.length) {
      const uint8_t* const from = in + line * runs.line_apart + j * runs.length;
      for (size_t copy = 0; copy < runs.copies; ++copy) {
        uint8_t* const to = first + copy * runs.copy_apart;
        is_short ? copy_short(from, runs.length, to) : (void)std::memcpy(to, from, runs.length);
      }
    }
  }
}

}  // namespace fastload
