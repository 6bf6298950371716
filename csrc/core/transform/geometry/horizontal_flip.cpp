// Mirrored with a probability: uniform_double of words 0, 1 of Philox block (kFlip, 0) is below it.
#include "transform/geometry/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"probability"};

void apply(std::span<const double> numbers, const SampleRng& rng, View& view) {
  if (numbers[0] <= 0) return;
  const PhiloxWords words = rng.words(DrawOp::kFlip, 0);
  if (!(uniform_double(words[0], words[1]) < numbers[0])) return;
  view.flip = !view.flip;
  view.quarter = static_cast<uint8_t>((4 - view.quarter) % 4);  // which come behind it
}

}  // namespace

constinit const GeometryOperation kHorizontalFlip{"horizontal_flip", kParameters, apply};

}  // namespace fastload
