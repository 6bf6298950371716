// Turned counter-clockwise by quarters: one of the given numbers of them, uniform_below of words 0,
// 1 of Philox block (kTurn, 0).
#include "transform/geometry/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"turns"};

void apply(std::span<const double> numbers, const SampleRng& rng, View& view) {
  const PhiloxWords words = rng.words(DrawOp::kTurn, 0);
  const uint32_t which = uniform_below(words[0], words[1], static_cast<uint32_t>(numbers.size()));
  view.quarter = static_cast<uint8_t>((view.quarter + static_cast<int>(numbers[which])) % 4);
}

}  // namespace

constinit const GeometryOperation kQuarterTurn{"quarter_turn", kParameters, apply, true};

}  // namespace fastload
