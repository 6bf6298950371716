#include "vision/cutter.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/cpu.h"
#include "base/error.h"
#include "transform/border.h"
#include "transform/buffer.h"
#include "transform/resample.h"
#include "transform/store_kernels.h"

namespace fastload {

// Hands rows on to all that is made of a picture.
class VisionCutter::Fork final : public RowSink {
 public:
  void clear() { sinks_.clear(); }
  void add(RowSink& sink) { sinks_.push_back(&sink); }
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override {
    for (RowSink* sink : sinks_) sink->rows(pixels, stride, y, count);
  }
  void restart() override {
    for (RowSink* sink : sinks_) sink->restart();
  }

 private:
  std::vector<RowSink*> sinks_;
};

// Lines of a picture into patches or tiles.
class VisionCutter::Cut final : public RowSink {
 public:
  void begin(const VisionPlan& plan, int width, void* place);
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override;
  void restart() override {}  // rows are written where they belong, again

 private:
  void planar(const uint8_t* pixels, size_t row);
  void write_blocks(uint8_t* to);
  [[nodiscard]] size_t first_of(size_t line) const;

  const VisionValues* values_ = nullptr;
  ValueLine line_ = nullptr;
  Streamed stream_ = nullptr;  // else rows are written where they belong
  StoreLine split_ = nullptr;  // RGB to three planes
  uint8_t* place_ = nullptr;
  size_t element_ = 1;  // bytes
  size_t width_ = 0;
  size_t unit_height_ = 0;
  size_t plane_ = 0;  // elements from a channel of a row to the next
  bool channels_last_ = false;
  ValueRuns runs_;
  Buffer<uint8_t> planes_;
  Buffer<uint8_t> staged_;    // a block's rows, or a tile's line, before they leave
  size_t planes_stride_ = 0;  // bytes from a channel of a line to the next
};

void VisionCutter::Cut::begin(const VisionPlan& plan, int width, void* place) {
  const VisionRule& rule = plan.rule();
  const bool blocks = rule.family == VisionFamily::kQwen2Vl;
  const auto [high, wide] = rule.unit();
  values_ = &plan.values();
  line_ = values_->line();
  stream_ = blocks ? values_->stream() : nullptr;  // a tile's lines are too short for it
  split_ = store_kernels(simd_level())[static_cast<size_t>(DType::kUint8)];
  place_ = static_cast<uint8_t*>(place);
  element_ = dtype_size(plan.dtype());
  width_ = static_cast<size_t>(width);
  unit_height_ = static_cast<size_t>(high);
  channels_last_ = rule.family == VisionFamily::kSiglip2;
  const auto unit_width = static_cast<size_t>(wide);
  runs_.length = channels_last_ ? 3 * unit_width : unit_width;
  runs_.count = width_ / unit_width;
  runs_.merge = blocks ? static_cast<size_t>(rule.merge) : 1;
  runs_.lines = blocks ? unit_height_ : 1;
  runs_.apart = rule.row_bytes(plan.dtype()) / element_;
  runs_.copies = runs_.apart / (3 * unit_height_ * unit_width);
  runs_.copy_apart = unit_height_ * unit_width;
  plane_ = runs_.copies * runs_.copy_apart;
  planes_stride_ = (width_ + kSlack + 63) / 64 * 64;
  runs_.line_apart = 3 * planes_stride_;
  if (channels_last_) return;
  planes_.reserve(runs_.lines * runs_.line_apart);
  if (stream_ != nullptr) staged_.reserve(runs_.merge * runs_.apart * element_);
}

// The first row of a line of patches, or of tiles.
size_t VisionCutter::Cut::first_of(size_t line) const {
  const size_t merge = runs_.merge;
  return line / merge * merge * runs_.count + line % merge * merge;
}

// A patch is written at once, from the lines of all its rows, which are few: line by line it would
// be fetched into the first cache as often as it has lines. A tile's are too many to be kept.
void VisionCutter::Cut::planar(const uint8_t* pixels, size_t row) {
  const size_t line = row % runs_.lines;
  uint8_t* const planes = planes_.data();
  split_(pixels, width_, StoreScale(), planes + line * runs_.line_apart, planes_stride_);
  if (line + 1 < runs_.lines) return;
  const size_t unit = first_of(row / unit_height_) * runs_.apart;
  const size_t at = unit + (row + 1 - runs_.lines) % unit_height_ * runs_.length;
  uint8_t* const to = place_ + at * element_;
  if (stream_ != nullptr) return write_blocks(to);
  for (size_t c = 0; c < 3; ++c) {
    line_(planes + c * planes_stride_, runs_, values_->channel(c), to + c * plane_ * element_);
  }
}

// A line of patches; those that are side by side in a block lie one behind the other.
void VisionCutter::Cut::write_blocks(uint8_t* to) {
  ValueRuns block = runs_;
  block.count = runs_.merge;
  const size_t bytes = runs_.merge * runs_.apart * element_;
  for (size_t j = 0; j < runs_.count; j += runs_.merge) {
    for (size_t c = 0; c < 3; ++c) {
      const uint8_t* const from = planes_.data() + c * planes_stride_ + j * runs_.length;
      line_(from, block, values_->channel(c), staged_.data() + c * plane_ * element_);
    }
    stream_(staged_.data(), bytes, to + runs_.place(j) * element_);
  }
}

void VisionCutter::Cut::rows(const uint8_t* pixels, size_t stride, int y, int count) {
  for (int i = 0; i < count; ++i) {
    const auto row = static_cast<size_t>(y + i);
    const uint8_t* const line = pixels + stride * static_cast<size_t>(i);
    if (!channels_last_) {
      planar(line, row);
      continue;
    }
    const size_t first = first_of(row / unit_height_) * runs_.apart;
    const size_t at = first + row % unit_height_ * runs_.length;
    line_(line, runs_, values_->interleaved(), place_ + at * element_);
  }
}

// A step of a rule: takes the rows of what it is made of, hands its own on.
class VisionCutter::Step final : public RowSink {
 public:
  // `width` and `height` of what it is made of.
  void begin(const VisionPlan& plan, const VisionStep& step, int width, int height, void* place);
  // Where the rows of what it is made of go.
  RowSink& in() { return crops_ ? *this : *in_; }
  void feeds(Step& other) { out_.add(other.in()); }
  // A part's rows.
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override;
  void restart() override { in_->restart(); }
  void end() {
    if (resizes_) resampler_.end();
  }

 private:
  Resampler resampler_;
  BorderSink border_;
  Fork out_;
  Cut cut_;
  RowSink* in_ = nullptr;
  Rect part_;
  bool resizes_ = false;
  bool crops_ = false;
};

void VisionCutter::Step::begin(const VisionPlan& plan, const VisionStep& step, int width,
                               int height, void* place) {
  resizes_ = step.resized;
  part_ = step.part;
  crops_ = resizes_ && part_ != Rect{0, 0, width, height};
  out_.clear();
  if (step.first_row != VisionStep::kNotCut) {
    const size_t bytes = plan.rule().row_bytes(plan.dtype());
    const size_t before = bytes * static_cast<size_t>(step.first_row);
    cut_.begin(plan, step.width, static_cast<uint8_t*>(place) + before);
    out_.add(cut_);
  }
  if (!resizes_) {
    const std::vector<uint8_t> black(3, 0);
    in_ = &border_.begin(part_, step.width, step.height,
                         step.coloured ? canvas_colour(plan.rule()) : black, out_);
    return;
  }
  View view;
  view.crop = {0, 0, part_.width, part_.height};
  view.resized_width = step.width;
  view.resized_height = step.height;
  view.window = {0, 0, step.width, step.height};
  resampler_.begin(view, step.filter, out_);
  in_ = &resampler_;
}

void VisionCutter::Step::rows(const uint8_t* pixels, size_t stride, int y, int count) {
  const int first = std::max(y, part_.y);
  const int end = std::min(y + count, part_.y + part_.height);
  if (first >= end) return;
  const uint8_t* const from = pixels + stride * static_cast<size_t>(first - y);
  in_->rows(from + static_cast<size_t>(part_.x) * 3, stride, first - part_.y, end - first);
}

VisionCutter::VisionCutter() : first_(std::make_unique<Fork>()) {}
VisionCutter::~VisionCutter() = default;

void VisionCutter::begin(const VisionPlan& plan, const VisionSizes& sizes, void* place) {
  const int width = sizes.source_width, height = sizes.source_height;
  used_ = 0;
  source_ = {0, 0, width, height};
  first_->clear();
  while (steps_.size() < sizes.steps.size()) steps_.push_back(std::make_unique<Step>());
  for (size_t i = 0; i < sizes.steps.size(); ++i) {
    const VisionStep& step = sizes.steps[i];
    const bool of_source = step.from == VisionStep::kSource;
    const VisionStep* from = of_source ? nullptr : &sizes.steps[static_cast<size_t>(step.from)];
    steps_[i]->begin(plan, step, from == nullptr ? width : from->width,
                     from == nullptr ? height : from->height, place);
    if (of_source) {
      first_->add(steps_[i]->in());
    } else {
      steps_[static_cast<size_t>(step.from)]->feeds(*steps_[i]);
    }
  }
  used_ = sizes.steps.size();
}

void VisionCutter::rows(const uint8_t* pixels, size_t stride, int y, int count) {
  first_->rows(pixels, stride, y, count);
}

void VisionCutter::restart() { first_->restart(); }

void VisionCutter::end() {
  if (used_ == 0) throw Error(ErrorKind::kState, "No picture was begun.");
  for (size_t i = 0; i < used_; ++i) steps_[i]->end();
  used_ = 0;
  first_->clear();
}

}  // namespace fastload
