// Jobs of one image and one label.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "collate/batch.h"
#include "engine/producer.h"

namespace fastload::test {

// Whole pictures of that many pixels a side, as they are.
inline SamplePlan plain_plan(int side) {
  return {FieldsPlan::of_image_and_label({{}, side, side}, {})};
}

inline BatchRequest plain_request(const SamplePlan& plan, std::span<uint8_t> images,
                                  std::span<int64_t> labels, std::vector<int64_t> ids,
                                  uint64_t epoch = 0) {
  return {places_of_image_and_label(plan.fields, images, labels),
          std::move(ids),
          {},
          epoch,
          nullptr,
          nullptr};
}

}  // namespace fastload::test
