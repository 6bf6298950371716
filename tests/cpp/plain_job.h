// Jobs of one image and one label.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "collate/batch.h"
#include "engine/producer.h"

namespace fastload::test {

inline FieldsPlan image_and_label(const ViewPlan& view, const StoreSpec& store) {
  FieldPlan image, label;
  image.form = FieldPlan::Form::kPicture;
  image.picture.store = store;
  label.form = FieldPlan::Form::kLabel;
  label.part = FieldPlan::kIndex;
  return FieldsPlan({view}, {image, label});
}

// Whole pictures of that many pixels a side, as they are.
inline SamplePlan plain_plan(int side) { return {image_and_label({{}, side, side}, {})}; }

// Pictures back to back, and labels.
inline std::vector<FieldPlace> places_of(const FieldsPlan& plan, std::span<uint8_t> images,
                                         std::span<int64_t> labels) {
  const ViewPlan& view = plan.views().front();
  FieldPlace image, label;
  image.memory = images;
  image.room = {view.out_height, view.out_width};
  image.row_bytes = plan.fields().front().pixel_bytes() * static_cast<size_t>(view.out_width);
  image.stride = image.row_bytes * static_cast<size_t>(view.out_height);
  label.memory = {reinterpret_cast<uint8_t*>(labels.data()), labels.size_bytes()};
  label.stride = sizeof(int64_t);
  return {image, label};
}

inline BatchRequest plain_request(const SamplePlan& plan, std::span<uint8_t> images,
                                  std::span<int64_t> labels, std::vector<int64_t> ids,
                                  uint64_t epoch = 0) {
  return {places_of(plan.fields, images, labels),
          std::move(ids),
          {},
          epoch,
          nullptr,
          nullptr};
}

}  // namespace fastload::test
