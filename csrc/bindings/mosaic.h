// MosaicSpec as Python gives it.
#pragma once

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>

#include "transform/mosaic.h"

namespace fastload::bindings {

// (size, tiles, (degrees, translate, scale, shear, perspective), fill, alpha)
using MosaicArg = std::tuple<int, int, std::array<double, 5>, std::array<uint8_t, 3>, double>;

inline MosaicSpec to_mosaic(const MosaicArg& arg) {
  const auto& [size, tiles, motion, fill, alpha] = arg;
  const auto& [degrees, translate, scale, shear, perspective] = motion;
  return {size, tiles, degrees, translate, scale, shear, perspective, fill, alpha};
}

inline std::optional<MosaicSpec> to_mosaic(const std::optional<MosaicArg>& arg) {
  if (!arg) return {};
  return to_mosaic(*arg);
}

}  // namespace fastload::bindings
