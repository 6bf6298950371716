// Upside down with a probability: uniform_double of words 0, 1 of Philox block (kFlip, 1) is below
// it. Where nothing turns the picture this is an operation on pixels.
#include "transform/geometry/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"probability"};

void apply(std::span<const double> numbers, const SampleRng& rng, View& view) {
  const PhiloxWords words = rng.words(DrawOp::kFlip, 1);
  if (!(uniform_double(words[0], words[1]) < numbers[0])) return;
  // Upside down is mirrored and turned twice, and mirrored behind turns is turned the other way
  // behind a mirror.
  view.flip = !view.flip;
  view.quarter = static_cast<uint8_t>((4 + 2 - view.quarter) % 4);
}

}  // namespace

constinit const GeometryOperation kVerticalFlip{"vertical_flip", kParameters, apply};

}  // namespace fastload
