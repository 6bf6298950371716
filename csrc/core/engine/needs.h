// Which bytes of a record its sample's crop needs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/loaded_bytes.h"
#include "engine/sample_plan.h"
#include "engine/sources.h"
#include "read_ahead/read_ahead.h"

namespace fastload {

// What announce() is given for a batch: the crop is drawn as decoding will draw it. Empty where no
// record can be read in parts. `ids` and `draws` as the batch's; sources and plan must outlive it.
ReadAhead::Needs needs_of(const Sources& sources, const SamplePlan& plan,
                          const std::vector<int64_t>& ids, const std::vector<uint32_t>& draws,
                          uint64_t epoch);

}  // namespace fastload
