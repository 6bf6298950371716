// Packs of samples: windows of an order, and their counts.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "convert.h"
#include "gil.h"
#include "register.h"
#include "sampler/packing.h"

namespace nb = nanobind;

namespace fastload::bindings {
namespace {

using Amounts = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Keys = nb::ndarray<const uint64_t, nb::shape<kShuffleRounds>, nb::c_contig, nb::device::cpu>;

PackBounds to_bounds(const Amounts& amounts, const std::vector<int32_t>& most) {
  if (most.empty() || most.size() > kPackBounds || amounts.shape(0) != most.size()) {
    throw nb::value_error("amounts must be (bounds, n), with one to three bounds, each in most.");
  }
  PackBounds bounds;
  bounds.count = most.size();
  for (size_t i = 0; i < most.size(); ++i) {
    bounds.most[i] = most[i];
    bounds.amounts[i] = {amounts.data() + i * amounts.shape(1), amounts.shape(1)};
  }
  return bounds;
}

nb::tuple pack_window(const Amounts& amounts, const std::vector<int32_t>& most) {
  const PackBounds bounds = to_bounds(amounts, most);
  std::vector<uint32_t> members;
  std::vector<uint32_t> ends;
  {
    GilRelease release;
    Packer packer;
    packer.pack(bounds, amounts.shape(1));
    packer.list(members, ends);
  }
  return nb::make_tuple(array(std::move(members)), array(std::move(ends)));
}

nb::tuple counts_of(const Amounts& amounts, const std::vector<int32_t>& most,
                    const std::optional<Keys>& keys, size_t first, size_t last) {
  const PackBounds bounds = to_bounds(amounts, most);
  std::optional<ShuffleKeys> known;
  if (keys) std::copy_n(keys->data(), kShuffleRounds, known.emplace().begin());
  std::vector<uint32_t> packs;
  std::vector<uint32_t> largest;
  {
    GilRelease release;
    for (const PackCounts& one : count_packs(bounds, known, first, last)) {
      packs.push_back(one.packs);
      largest.push_back(one.largest);
    }
  }
  return nb::make_tuple(array(std::move(packs)), array(std::move(largest)));
}

}  // namespace

void register_packing(nb::module_& m) {
  m.attr("PACK_WINDOW") = kPackWindow;
  m.def("pack_window", pack_window, nb::arg("amounts").noconvert(), nb::arg("most"),
        "The packs of a window by best fit decreasing: (members, ends). amounts: (bounds, n) "
        "int32, n at most PACK_WINDOW; most: of each bound in a pack. members: (n,) uint32, the "
        "samples pack by pack; ends: (packs,) uint32, where each ends. Raises ValueError.");
  m.def("count_packs", counts_of, nb::arg("amounts").noconvert(), nb::arg("most"),
        nb::arg("keys").noconvert().none(), nb::arg("first"), nb::arg("last"),
        "Of windows first to last - 1: (packs, largest), each (windows,) uint32: the number of "
        "packs, and the most samples in one. amounts: (bounds, n) int32, in the order of keys, "
        "(12,) uint64, as shuffled() in fastload/sampler/order.py; None: as they are. Raises "
        "ValueError.");
}

}  // namespace fastload::bindings
