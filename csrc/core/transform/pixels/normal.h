// A normal number from random words.
#pragma once

#include <cmath>
#include <numbers>

#include "base/philox.h"

namespace fastload {

// Standard normal, by Box and Muller, from one block.
inline double standard_normal(const PhiloxWords& words) {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform_double(words[0], words[1])));
  return radius * std::cos(2.0 * std::numbers::pi * uniform_double(words[2], words[3]));
}

}  // namespace fastload
