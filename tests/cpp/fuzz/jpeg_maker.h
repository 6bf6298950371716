// Whole JPEGs of random coefficients, tables and layouts, as starting points of the mutator.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace fastload::fuzz {

using Random = std::minstd_rand;

// A number in [low, high].
int pick(Random& random, int low, int high);

// Gray, YCbCr or CMYK of any sampling, restart interval and quantisation, sequential or
// progressive, with coefficients up to the extremes that an encoder may write. Sides of 1 to 80
// pixels.
std::vector<uint8_t> make_jpeg(Random& random);

}  // namespace fastload::fuzz
