// A vision rule from a family's name and numbers by name: which a family has, what they are where
// nothing is said, and what they may be.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "vision/rule.h"

namespace fastload {

// A number of a rule as callers give it: one, several, or a name.
struct VisionNumber {
  std::vector<double> values;  // of pairs one behind the other; true is 1
  std::string name;            // of the filter
};

// The family's class with its defaults, but for what is given. Throws Error(kValue) for a family or
// number that does not exist or that the family does not use, and for one out of its range.
VisionRule vision_rule(std::string_view family,
                       std::span<const std::pair<std::string, VisionNumber>> numbers);

}  // namespace fastload
