// Rectangles of a stored picture filled: RandomErasing of torchvision and timm, behind the store,
// because a mean that was subtracted has no value among 256.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/philox.h"

namespace fastload {

struct StorePlace;
struct StoreSpec;

struct EraseSpec {
  // What a rectangle has: three numbers; three standard normal ones, drawn for each rectangle; or
  // one of those for each value.
  enum class Fill : uint8_t { kValue, kColor, kNoise };

  double probability = 0.0;
  std::array<double, 2> area{};       // least and greatest share of the picture, of all rectangles
  std::array<double, 2> log_ratio{};  // of height over width
  std::array<int, 2> count{1, 1};     // of rectangles, uniform
  Fill fill = Fill::kValue;
  std::array<float, 3> value{};
};

// Draws for the sample, as fastload/transfer/draws.py does for batches, and fills. Of a picture
// that stands at `place` as `spec` says, RGB of 8 bits as one of the first four dtypes.
void erase(const StoreSpec& spec, const SampleRng& rng, const StorePlace& place, int width,
           int height);

}  // namespace fastload
