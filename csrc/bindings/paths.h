// Counts by decoding path for Python.
#pragma once

#include <nanobind/nanobind.h>

#include "decode/decode.h"

namespace fastload::bindings {

// A dict of the paths that there are; `counts` as DecodeCounts.
template <class Counts>
nanobind::dict by_path(const Counts& counts) {
  nanobind::dict out;
  for (size_t path = 0; path < kPaths; ++path) {
    const std::string_view name = path_name(path);
    if (!name.empty()) out[nanobind::str(name.data(), name.size())] = uint64_t{counts[path]};
  }
  return out;
}

}  // namespace fastload::bindings
