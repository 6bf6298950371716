// Mixes: what several chains of operations make of a picture, put together with weights.
#pragma once

#include <span>

#include "base/philox.h"
#include "transform/pixels/operation.h"

namespace fastload {

// The steps that a mix of chains becomes; between `begin` and `end` each chain is followed by
// `add`. Numbers are float32's. Not in the registry: only groups make them, and never one inside
// another.
//
// Sums: `begin` starts the sums with the picture times its number, `add` adds the picture times its
// number, in float32, product by product, and goes back to the picture of `begin`; `end` cuts the
// sums to whole numbers and blends the picture with them by its number (1: the sums alone).
extern const PixelOperation kMixBegin, kMixAdd, kMixEnd;
// Turns: `begin` keeps the picture, `add` blends what is kept with the picture by its number, and
// goes back to the picture of `begin`; `end` shows what is kept. Blends are Pillow's Image.blend.
extern const PixelOperation kTurnBegin, kTurnAdd, kTurnEnd;

// Weights drawn from Dirichlet(alpha, ...), in double: gamma variates by Marsaglia and Tsang, "A
// simple method for generating gamma variables" (2000), from the stream of this key. `first` is the
// number of its blocks that are spent; returns as many as are spent behind it.
uint32_t draw_dirichlet(PhiloxKey key, uint32_t first, double alpha, std::span<double> weights);

}  // namespace fastload
