// A picture as the rows that a vision-language model takes, from the decoder's rows to their place
// in the batch. A rule's resizes follow one another as rows come, so that the picture is never kept
// whole: between two steps lie the lines that the second's filter needs.
//
//   const VisionPlan plan(vision_rule("qwen2_vl", {}), DType::kFloat32);  // once
//   const ImageInfo info = decoder.open(bytes);
//   const VisionSizes sizes = fastload::plan(plan.rule(), info.width, info.height);
//   cutter.begin(plan, sizes, place);  // sizes.rows * plan.rule().row_bytes(plan.dtype()) bytes
//   decoder.decode(cutter.source(), cutter, entries);
//   cutter.end();
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/geometry.h"
#include "base/row_sink.h"
#include "transform/store.h"
#include "vision/rule.h"
#include "vision/values.h"

namespace fastload {

// What is the same for all pictures; may be shared by threads.
class VisionPlan {
 public:
  // Throws as VisionValues.
  VisionPlan(VisionRule rule, DType dtype) : rule_(std::move(rule)), values_(rule_, dtype) {}
  [[nodiscard]] const VisionRule& rule() const { return rule_; }
  [[nodiscard]] const VisionValues& values() const { return values_; }
  [[nodiscard]] DType dtype() const { return values_.dtype(); }
  // Rows that each picture has in a batch, with zeros behind its own; 0: its own alone. SigLIP 2's
  // batches have as many for all, so they are laid out so at once. Bytes are not: their table would
  // make other values of the zeros.
  [[nodiscard]] int64_t rows_each() const {
    const bool padded = rule_.family == VisionFamily::kSiglip2 && dtype() != DType::kUint8;
    return padded ? rule_.max_patches : 0;
  }

 private:
  VisionRule rule_;
  VisionValues values_;
};

// One per thread; keeps its memory between pictures.
class VisionCutter final : public RowSink {
 public:
  VisionCutter();
  ~VisionCutter();
  VisionCutter(const VisionCutter&) = delete;
  VisionCutter& operator=(const VisionCutter&) = delete;

  // Starts the picture that `sizes` was planned for by the plan's rule: the rows of source(), all
  // of it, will come through rows(), RGB of 8 bits. Its patches or tiles go to `place`, sizes.rows
  // rows without gaps, in the order of the family's processor. The plan must live until end().
  void begin(const VisionPlan& plan, const VisionSizes& sizes, void* place);
  [[nodiscard]] Rect source() const { return source_; }
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override;
  void restart() override;
  // Ends the picture. Throws Error(kState) if rows were missing.
  void end();

 private:
  class Step;
  class Cut;
  class Fork;

  std::vector<std::unique_ptr<Step>> steps_;  // as many as a picture has needed
  std::unique_ptr<Fork> first_;               // what is made of the source
  size_t used_ = 0;                           // steps of this picture
  Rect source_;
};

}  // namespace fastload
